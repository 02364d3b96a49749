"""A file that ends the process which reads it is a finding of its table, and verify goes on."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import StorageError, UsageError
from omnigraph.maintenance.verify import checksums, isolated
from omnigraph.maintenance.verify.checksums import Checksums
from omnigraph.storage.files import footers
from omnigraph.tasks.runner import task_name

COUNT_OF_BUFFERS = -13
"""Where the highest byte of a count lies, from the end of a file of Lance, which it allocates 16 bytes each for."""
ADDRESS_SPACE_BYTES = 8 << 30


@pytest.fixture(autouse=True)
def _no_children_left() -> Iterator[None]:
    yield
    isolated.end_children()
    assert isolated._idle == {}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("isolated") / "g"
    graph = og.init(path, "node P { name: String @key  age: I64? @index }\nnode Q { name: String @key }")
    graph.insert({"P": [{"name": f"p{i}", "age": i} for i in range(30)], "Q": [{"name": "q"}]})
    graph.insert({"P": [{"name": "late", "age": 3}]})
    graph.optimize()
    return path


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "g"))


def flip(file: Path, at: int, mask: int = 0x40) -> None:
    raw = bytearray(file.read_bytes())
    raw[at] ^= mask
    file.write_bytes(raw)


# ---- children --------------------------------------------------------------------------------------------------------


def abort(_: Mapping[str, Any]) -> None:
    os.abort()


def hang(_: Mapping[str, Any]) -> None:
    time.sleep(600)


def refuse(_: Mapping[str, Any]) -> None:
    raise UsageError(detail="no.")


def fail(_: Mapping[str, Any]) -> None:
    raise KeyError("gone")


def process(_: Mapping[str, Any]) -> int:
    print("what a library prints")
    return os.getpid()


def test_a_child_answers_and_is_used_again() -> None:
    first = isolated.ask_child(task_name(process), {})
    assert first != os.getpid()
    with pytest.raises(UsageError, match="no"):
        isolated.ask_child(task_name(refuse), {})
    with pytest.raises(RuntimeError, match="KeyError"):
        isolated.ask_child(task_name(fail), {})
    assert isolated.ask_child(task_name(process), {}) == first


def test_a_child_that_aborts_or_hangs_is_told_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(isolated.Died, match=f"signal {int(signal.SIGABRT)}"):
        isolated.ask_child(task_name(abort), {})
    monkeypatch.setattr(isolated, "TASK_MAX_S", 0.1)
    with pytest.raises(isolated.Died, match="did not come to an end"):
        isolated.ask_child(task_name(hang), {})
    monkeypatch.undo()
    assert isolated.ask_child(task_name(process), {}) != os.getpid()


# ---- verify ----------------------------------------------------------------------------------------------------------


def limit_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what is asked for is refused, however much memory this machine has."""
    real = isolated.subprocess.Popen

    def limited(arguments: list[str], **options: Any) -> Any:
        return real(["prlimit", f"--as={ADDRESS_SPACE_BYTES}", "--core=0", *arguments], **options)

    monkeypatch.setattr(isolated.subprocess, "Popen", limited)


def test_a_healthy_graph_with_checksums_starts_no_child(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "_Child", None)
    for depth in ({}, {"quick": True}, {"full": True}):
        assert og.open(path, engine="local").verify(**depth).ok


def test_a_full_run_without_checksums_reads_in_children(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checksums, "expected", lambda *_: [])
    started: list[str] = []
    real = isolated.ask_child
    monkeypatch.setattr(isolated, "ask_child", lambda work, task: (started.append(work), real(work, task))[1])
    assert og.open(path, engine="local").verify().findings == ()
    assert started == []
    assert og.open(path, engine="local").verify(full=True).findings == ()
    assert {work.rpartition(":")[2] for work in started} >= {"digest_rows", "check_index"}


@pytest.mark.slow
def test_an_index_that_ends_the_process_is_a_finding(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checksums, "expected", lambda *_: [])
    monkeypatch.setattr(checksums, "require_footer", lambda *_, **__: None)
    limit_children(monkeypatch)
    for file in path.glob("nodes/*/_indices/*/page_data.lance"):
        flip(file, COUNT_OF_BUFFERS)
    result = og.open(path, engine="local").verify(full=True)
    codes = {finding.code for finding in result.findings}
    assert codes == {"index_unreadable"}, result.findings
    assert any("signal" in example for finding in result.findings for example in finding.examples)


def test_a_damaged_footer_is_a_typed_error_that_names_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footers, "_checked", set())
    (file, *_) = path.glob("nodes/*/data/*.lance")
    good = file.read_bytes()
    footers.require_footer(str(file))
    refused = 0
    for at in range(-40, 0):
        flip(file, at)
        try:
            footers.require_footer(str(file))
        except StorageError:
            refused += 1
        file.write_bytes(good)
    assert refused > 30
    for file in path.glob("nodes/*/data/*.lance"):
        flip(file, COUNT_OF_BUFFERS)
    with pytest.raises(StorageError, match=r"\.lance: the data file is damaged"):
        og.open(path, engine="local").nodes("P")
    assert {f.code for f in og.open(path, engine="local").verify().findings} == {"checksum_mismatch"}
