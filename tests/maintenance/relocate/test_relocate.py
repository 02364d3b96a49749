"""Relocate rewrites the addresses of a copied or moved graph, and nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph.errors import GraphMoved, GraphNotFound, StorageError, UsageError
from omnigraph.storage.files.version_file import NotUnderstood, parse_version, with_bases
from tests.cli.conftest import Cli
from tests.maintenance.relocate import graphs


def relocated(root: Path) -> og.Graph:
    graph = og.open(root, engine="local")
    assert graph.relocate(confirm=True).ok
    return graph


def test_a_relocated_copy_holds_what_its_original_holds(original: Path, copy: Path) -> None:
    result = og.open(copy, engine="local").relocate(confirm=True)
    assert (result.rewritten, len(result.versions)) == (len(result.versions), 11)
    assert [(root.root, root.versions, root.is_graph) for root in result.roots] == [(str(original), 11, True)]
    graph = og.open(copy, engine="local")
    assert graphs.contents(graph) == graphs.contents(og.open(original))
    assert graph.verify(full=True).findings == og.open(original, engine="local").verify(full=True).findings
    again = graph.relocate(confirm=True)
    assert (again.ok, again.versions, again.rewritten) == (True, (), 0)


def test_only_the_files_of_fork_versions_change_and_keep_their_times(original: Path, copy: Path) -> None:
    before = {path: os.stat(copy / path).st_mtime_ns for path in graphs.digests(copy)}
    relocated(copy)
    after = graphs.digests(copy)
    changed = {path for path, digest in graphs.digests(original).items() if after[path] != digest}
    changed -= {"__manifest/_versions/latest_version_hint.json"}
    assert changed
    assert all("/tree/" in path and "/_versions/" in path for path in changed)
    new = {path for path in set(after) - set(before) if not path.startswith("__manifest/")}
    assert not new, "nothing is left behind but the checksums of what was rewritten"
    assert {path: os.stat(copy / path).st_mtime_ns for path in after if "__manifest/" not in path} == {
        path: modified for path, modified in before.items() if "__manifest/" not in path
    }


def test_a_relocated_copy_is_written_optimized_and_cleaned_up_on_its_own(original: Path, copy: Path) -> None:
    graph = relocated(copy)
    for branch in graphs.BRANCHES:
        graph.upsert({"Person": [{"name": "later", "age": 1}], "Place": [{"name": "later"}]}, branch=branch)
    graph.create_branch("deeper", from_branch="deep")
    graph.delete({"Person": ["later"]}, branch="deeper")
    graph.optimize(branch="deep")
    before = graphs.contents(graph)
    assert not graph.cleanup(keep=1, confirm=True).failed
    assert graphs.contents(graph) == before
    assert graph.verify(full=True).ok


def test_what_happens_to_the_original_does_not_reach_a_relocated_copy(tmp_path: Path) -> None:
    original = graphs.build(tmp_path / "original")
    graph = relocated(Path(shutil.copytree(original.uri, tmp_path / "copy")))
    before = graphs.contents(graph)
    for branch in ("deep", "review", "trial"):
        original.delete_branch(branch)
    original.upsert({"Person": [{"name": "p0", "age": 9}]})
    original.optimize()
    assert original.cleanup(keep=1, confirm=True).reclaimed_forks
    assert graphs.contents(graph) == before
    shutil.rmtree(original.uri)
    assert graphs.contents(graph) == before
    assert graph.verify(full=True).ok


@pytest.mark.parametrize("name", ["m", "a much longer name than the one that it had before", "é ü%20", "deep/er/still"])
def test_a_moved_graph_works_at_an_address_of_any_length(tmp_path: Path, original: Path, name: str) -> None:
    copy = shutil.copytree(original, tmp_path / name)
    assert graphs.contents(relocated(copy)) == graphs.contents(og.open(original))


def test_a_graph_can_be_moved_many_times_and_back(tmp_path: Path) -> None:
    place = Path(graphs.build(tmp_path / "0").uri)
    before, bytes_before = graphs.contents(og.open(place)), graphs.digests(place)
    for name in ("1", "2", "0"):
        place = Path(shutil.move(place, tmp_path / name))
        graph = relocated(place)
        assert graphs.contents(graph) == before
    digests = graphs.digests(place)
    assert {path: digests[path] for path in bytes_before if "_hint" not in path} == {
        path: digest for path, digest in bytes_before.items() if "_hint" not in path
    }


def test_forks_of_several_addresses_are_rewritten_together_or_one_by_one(original: Path, copy: Path) -> None:
    graph = og.open(copy, engine="local")
    graph.create_branch("own")
    graph.upsert({"Person": [{"name": "own", "age": 1}]}, branch="own")  # a fork that was made here
    moved = Path(shutil.move(copy, copy.parent / "moved"))
    graph = og.open(moved, engine="local")
    preview = graph.relocate()
    assert {root.root for root in preview.roots} == {str(original), str(copy)}
    some = graph.relocate(from_address=str(copy), confirm=True)
    assert not some.ok, "what is not relocated is told"
    assert graph.nodes("Person", branch="own").num_rows == 7
    with pytest.raises(GraphMoved):
        graph.nodes("Person", branch="review")
    assert graph.relocate(confirm=True).ok
    with pytest.raises(UsageError, match="refers to"):
        graph.relocate(from_address=str(copy), confirm=True)


def test_a_preview_changes_nothing(copy: Path, cli: Cli) -> None:
    before = graphs.digests(copy)
    done = cli("relocate", copy)
    assert (done.code, "would rewrite 11 versions of 3 tables" in done.out) == (0, True)
    assert graphs.digests(copy) == before
    document = cli("relocate", copy, "--json").json
    assert (document["confirmed"], document["versions"], document["rewritten"], document["verify"]) == (
        False,
        11,
        0,
        None,
    )
    assert sum(table["versions"] for table in document["tables"]) == 11


def test_the_command_relocates_and_verifies(copy: Path, cli: Cli) -> None:
    done = cli("relocate", copy, "--confirm")
    assert (done.code, "rewrote 11 versions" in done.out, "ok" in done.out) == (0, True, True)
    document = cli("relocate", copy, "--confirm", "--json").json
    assert (document["ok"], document["versions"], document["verify"]["ok"]) == (True, 0, True)


def test_a_copy_with_missing_files_is_told_as_damaged(copy: Path, cli: Cli) -> None:
    data = max(copy.glob("nodes/*/data/*.lance"), key=lambda path: path.stat().st_mtime_ns)
    data.unlink()
    done = cli("relocate", copy, "--confirm")
    assert (done.code, "missing_file" in done.out) == (1, True)


def test_the_same_folder_under_another_path_is_refused(
    original: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stands for a bind mount, which only root can make: both paths are there, and name one folder."""
    monkeypatch.setattr("os.path.samefile", lambda one, other: {one, other} == {str(original), str(copy)})
    graph = og.open(copy, engine="local")
    with pytest.raises(UsageError, match="one folder under two paths"):
        graph.relocate()
    assert graph.relocate(from_address=str(original), confirm=True).ok


def test_wrong_addresses_are_refused(copy: Path, tmp_path: Path) -> None:
    graph = og.open(copy, engine="local")
    with pytest.raises(UsageError, match="where the graph is"):
        graph.relocate(from_address=str(copy))
    with pytest.raises(UsageError, match="refers to"):
        graph.relocate(from_address=str(tmp_path / "never"))
    with pytest.raises(GraphNotFound):
        og.open(tmp_path / "nothing").relocate()


def test_a_version_that_is_not_understood_is_refused_and_stays(copy: Path) -> None:
    file = min(copy.glob("nodes/*/tree/*/_versions/*.manifest"))
    raw = bytearray(file.read_bytes())
    start = int.from_bytes(raw[-16:-8], "little")
    raw[start + 4] = 0x07  # a field with a wire type that does not exist
    file.write_bytes(raw)
    before = graphs.digests(copy)
    with pytest.raises(StorageError, match=r"does not know|can't read"):
        og.open(copy, engine="local").relocate(confirm=True)
    assert graphs.digests(copy) == before


def test_rewritten_files_are_read_by_lance_and_by_us_alike(copy: Path, original: Path) -> None:
    for file in copy.glob("*/*/tree/*/_versions/*.manifest"):
        raw = file.read_bytes()
        same = with_bases(raw, lambda base: base)
        assert same == raw
        longer = with_bases(raw, lambda base: base.replace(str(original), "/" + "x" * 300))
        assert with_bases(longer, lambda base: base.replace("/" + "x" * 300, str(original))) == raw
        parsed = parse_version(longer)
        assert all(base.startswith("/xxx") for base in parsed.bases.values())
        with pytest.raises(NotUnderstood):
            with_bases(raw[:-1], lambda base: base)
    relocated(copy)
    for line in copy.glob("*/*/tree/*"):
        table = lance.dataset(str(line))
        for version in table.versions():
            at = table.checkout_version(version["version"])
            assert all(base.path.startswith(str(copy)) for base in at.base_paths().values())
            at.to_table()
            at.read_transaction(version["version"])
