"""What versions refer to, read from their files, is what Lance itself says, for tables with everything in them."""

from __future__ import annotations

import os
from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph.storage.files import references
from omnigraph.storage.files.references import Folder, References, folder_of, read_references
from omnigraph.storage.files.version_file import NotUnderstood, fragment_references, parse_version
from omnigraph.storage.objects.store import ObjectStore
from tests.maintenance.cleanup.conftest import folder_of as line_of
from tests.maintenance.cleanup.conftest import root_of

SCHEMA = """
node Doc { name: String @key  n: I32? @index  text: String? @index  tags: [String]? @index  body: Blob?  v: Vector(4)? }
"""


def rich(path: Path, row_ids: str) -> og.Graph:
    graph = og.init(path, SCHEMA, row_ids=row_ids)  # type: ignore[arg-type]

    def docs(start: int, count: int) -> list[dict[str, object]]:
        return [
            {
                "name": f"d{i}",
                "n": i,
                "text": f"word{i % 7} of {i}",
                "tags": [f"t{i % 3}"],
                "body": os.urandom(100_000) if i % 20 == 0 else b"x",
                "v": [float(i), 1.0, 2.0, 3.0],
            }
            for i in range(start, start + count)
        ]

    graph.insert({"Doc": docs(0, 40)})
    graph.optimize()
    graph.delete({"Doc": [f"d{i}" for i in range(5, 9)]})
    for i in range(36):
        graph.upsert({"Doc": docs(100 + i, 1)})
    graph.update("Doc", {"n": -1}, ids=["d1", "d2", "d3"])
    graph.optimize()
    graph.create_branch("side")
    graph.delete({"Doc": ["d10", "d11"]}, branch="side")
    graph.insert({"Doc": docs(500, 30)}, branch="side")
    graph.optimize(branch="side")
    graph.create_branch("nested", from_branch="side")
    graph.delete({"Doc": ["d12"]}, branch="nested")
    graph.upsert({"Doc": docs(600, 3)}, branch="nested")
    graph.apply_schema(SCHEMA.replace("body: Blob?", "body: Blob?  more: String?"))
    graph.upsert({"Doc": docs(700, 3)})
    return graph


def listing(graph: og.Graph, path: str) -> Folder:
    return folder_of(path, ObjectStore(graph._location, path).iter_files())


@pytest.mark.parametrize("row_ids", ["stable", pytest.param("address", marks=pytest.mark.long)])
def test_references_from_files_are_those_of_lance(tmp_path: Path, row_ids: str) -> None:
    graph = rich(tmp_path / "g", row_ids)
    path = os.path.relpath(root_of(graph, "Doc"), graph.uri)
    folder = listing(graph, path)
    assert len(folder.lines) == 3
    for line in folder.lines.values():
        uri = str(Path(graph.uri) / path / line.path)
        ours = References()
        references._read_files(graph._location, folder, line, set(line.versions), set(), ours)
        lances = References()
        for rows in references._runs(lance.dataset(uri).tracked_files()):
            references._add(rows, folder, line, set(), lances)
        # Of a fork, Lance leaves out the indices that it has inherited: those of the versions tell the truth.
        described = {
            f"_indices/{segment.uuid}/"
            for version in line.versions
            for index in lance.dataset(uri, version=version).describe_indices()
            for segment in index.segments
        }
        assert ours.kept == {key for key in lances.kept if "_versions/" not in key} | described
        assert (described <= lances.kept) == (line.path == ""), "an upgrade of Lance that mends this shows itself"
        assert any(key.endswith("/") for key in ours.kept), "indices are among them"
        assert any("_deletions/" in key for key in ours.kept)
        middle = {v for v in line.versions if v % 2}
        split, split_lance = References(), References()
        references._read_files(graph._location, folder, line, set(line.versions), middle, split)
        for rows in references._runs(lance.dataset(uri).tracked_files()):
            references._add(rows, folder, line, middle, split_lance)
        odd = ("_versions/", "_indices/")
        assert {k for k in split.kept if not k.startswith(odd)} == {
            k for k in split_lance.kept if not any(o in k for o in odd)
        }
        assert {k: v for k, v in split.removed.items() if not k.startswith(odd)} == {
            k: v for k, v in split_lance.removed.items() if not any(o in k for o in odd)
        }


def test_every_live_line_survives_cleanup_of_a_rich_table(tmp_path: Path) -> None:
    graph = rich(tmp_path / "g", "stable")
    names = ("main", "side", "nested")
    before = {b: graph.snapshot(b).read("Doc").sort_by("id").to_pylist() for b in names}
    for found in Path(graph.uri).rglob("*"):
        os.utime(found, (1_000_000_000, 1_000_000_000))
    graph.cleanup(keep=1, older_than="0s", confirm=True)
    again = og.open(graph.uri)
    assert {b: again.snapshot(b).read("Doc").sort_by("id").to_pylist() for b in names} == before
    for branch in names:
        assert again.nodes("Doc", branch=branch, where="n = 20").num_rows == 1
        table = lance.dataset(str(line_of(again, "Doc", branch)))
        assert table.scanner(full_text_query="word3").to_table().num_rows > 0
    assert again.verify().ok


def test_a_version_that_holds_something_unknown_is_read_by_lance(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.path.relpath(root_of(history), history.uri)
    folder = listing(history, path)
    going = {v for v in folder.lines[""].versions if v < 9}
    expected, found = References(), References()
    read_references(history._location, folder, folder.lines[""], going=going, into=expected)

    def strict(raw: bytes) -> object:
        raise NotUnderstood("a field of tomorrow")

    monkeypatch.setattr(references, "parse_version", strict)
    read_references(history._location, folder, folder.lines[""], going=going, into=found)
    versions = "_versions/"
    assert {k for k in found.kept if versions not in k} == {k for k in expected.kept if versions not in k}
    assert expected.removed
    assert not found.removed, "what goes may have been rolled back: its files wait until they are old"


@pytest.mark.parametrize(
    "raw",
    [b"", b"LANC", b"x" * 100, b"\x08\x01" + b"\x00" * 16 + b"LANC", b"\x00" * 8 + b"\xff" * 12 + b"LANC"],
)
def test_what_is_no_version_is_not_understood(raw: bytes) -> None:
    with pytest.raises(NotUnderstood):
        parse_version(raw)


def test_a_field_that_is_not_known_is_never_passed_over(history: og.Graph) -> None:
    path = max((root_of(history) / "_versions").glob("*.manifest"), key=lambda p: p.stat().st_size)
    fragment = parse_version(path.read_bytes()).fragments[0]
    assert list(fragment_references(fragment))
    with pytest.raises(NotUnderstood, match="field 12 of a fragment"):
        list(fragment_references(fragment + bytes([12 << 3 | 2, 1, 0])))
