"""A command that is stopped while Spark starts leaves no JVM behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

import omnigraph as og

MARK = "OMNIGRAPH_TEST_MARK"
ENDS_S = 60.0
"""How long a JVM that notices by itself may need, on a busy machine; one that is ended is gone at once."""


def marked(mark: str) -> dict[int, str]:
    """Command lines of the processes whose environment has the mark, by their id."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(entry.name)] = command
        except OSError:
            continue  # it has ended, or is another user's
    return {process: command for process, command in found.items() if command}


def start(folder: Path, mark: str) -> subprocess.Popen[str]:
    og.init(folder / "g", "node P { name: String @key }")
    (folder / "p.jsonl").write_text('{"type": "P", "data": {"name": "a"}}\n')
    words = ["load", str(folder / "g"), "--data", str(folder / "p.jsonl"), "--mode", "append", "--engine", "spark"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "omnigraph.cli.main", *words, "--quiet"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, MARK: mark},
    )


def wait_for_jvm(process: subprocess.Popen[str], mark: str) -> None:
    while not any("org.apache.spark" in command for command in marked(mark).values()):
        assert process.poll() is None, f"it ended before a JVM was seen: {process.communicate()}"
        time.sleep(0.02)


def left(mark: str, *, within_s: float) -> dict[int, str]:
    deadline = time.monotonic() + within_s
    while (found := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def test_ctrl_c_while_the_jvm_starts_ends_it(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    process = start(tmp_path, mark)
    wait_for_jvm(process, mark)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=ENDS_S)
    try:
        assert process.returncode == 130
        assert told.startswith("error: stopped by Ctrl-C.")
        assert len(told.splitlines()) == 2
        assert not left(mark, within_s=2.0)
    finally:
        for number in marked(mark):
            os.kill(number, signal.SIGKILL)
    assert not og.open(tmp_path / "g").nodes("P").num_rows


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_jvm_ends_when_the_process_that_started_it_dies(tmp_path: Path, number: signal.Signals) -> None:
    mark = uuid.uuid4().hex
    process = start(tmp_path, mark)
    wait_for_jvm(process, mark)
    process.send_signal(number)
    process.communicate(timeout=ENDS_S)
    try:
        assert not left(mark, within_s=ENDS_S)
    finally:
        for orphan in marked(mark):
            os.kill(orphan, signal.SIGKILL)
