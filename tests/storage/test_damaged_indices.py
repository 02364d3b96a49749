"""A damaged footer of an index file is a typed error that names it, and optimize builds the index anew. Lance would
end the process.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import StorageError
from omnigraph.maintenance.verify.checksums import Checksums
from omnigraph.storage.files import footers

SCHEMA = """
node P {
    name: String @key
    age: I64? @index
    kind: enum(a, b, c)? @index
    bio: String? @index
    tags: [String]? @index
    v: Vector(4)? @index
}
edge Knows: P -> P
"""
COUNT_OF_BUFFERS = -13
"""Where the highest byte of a count lies, from the end of a file of Lance, which it allocates 16 bytes each for."""
ADDRESS_SPACE_BYTES = 8 << 30
TYPED = 7
CHILD = """
import sys
import omnigraph as og
from omnigraph.errors import StorageError
try:
    graph = og.open(sys.argv[1], engine="local")
    {question}
except StorageError as error:
    print(error.fields["reason"], error.fields["detail"])
    sys.exit({typed})
"""
QUESTIONS = {
    "page_data.lance": """graph.nodes("P", where={"age": 3})""",
    "page_lookup.lance": """graph.insert({"P": [{"name": "new"}]})""",
    "bitmap_page_lookup.lance": """graph.nodes("P", where={"kind": "a"})""",
    "part_0_tokens.lance": (
        """graph.query('query q() { match { $a: P search($a.bio, "word5") } return { $a.name } }')"""
    ),
    "metadata.lance": ("""graph.query('query q() { match { $a: P search($a.bio, "word5") } return { $a.name } }')"""),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("indices") / "g"
    graph = og.init(path, SCHEMA)
    graph.insert(
        {
            "P": [
                {
                    "name": f"p{i}",
                    "age": i % 50,
                    "kind": "abc"[i % 3],
                    "bio": f"word{i} text",
                    "tags": [f"t{i % 7}"],
                    "v": [i, 1, i % 5, 0],
                }
                for i in range(600)
            ]
        }
    )
    graph.insert({"Knows": [{"src": f"p{i}", "dst": f"p{i + 1}"} for i in range(50)]})
    graph.optimize()
    return path


@pytest.fixture
def path(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("_checked", "_checked_segments"):
        monkeypatch.setattr(footers, name, set())
    monkeypatch.setattr(footers, "_unchecked", {})
    return Path(shutil.copytree(template, tmp_path / "g"))


def damage(path: Path, name: str) -> list[str]:
    """Change a count in the footer of every index file of nodes that has this name."""
    files = sorted(path.glob(f"nodes/*/_indices/*/{name}"))
    assert files
    for file in files:
        raw = bytearray(file.read_bytes())
        raw[COUNT_OF_BUFFERS] ^= 0x40
        file.write_bytes(raw)
    return [str(file) for file in files]


def ask(path: Path, question: str) -> subprocess.CompletedProcess[str]:
    program = CHILD.replace("{question}", question).replace("{typed}", str(TYPED))
    limited = ["prlimit", f"--as={ADDRESS_SPACE_BYTES}", "--core=0", sys.executable, "-c", program, str(path)]
    return subprocess.run(limited, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_query_over_a_damaged_footer_does_not_end_the_process(path: Path, name: str) -> None:
    files = damage(path, name)
    done = ask(path, QUESTIONS[name])
    assert done.returncode == TYPED, (done.returncode, done.stdout, done.stderr[-500:])
    assert done.stdout.startswith("damaged_index ")
    assert any(file in done.stdout for file in files)


SEARCH = 'query q() { match { $a: P search($a.bio, "word5") } return { $a.name } }'


def refused(act: Callable[[], object]) -> None:
    with pytest.raises(StorageError, match="the index file is damaged") as caught:
        act()
    assert "omnigraph optimize" in caught.value.remedy


@pytest.mark.parametrize(
    "name",
    [
        "page_data.lance",
        "*.*",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("part_0_docs.lance", "index.idx", "auxiliary.idx")),
    ],
)
def test_optimize_builds_the_index_anew(path: Path, name: str) -> None:
    damage(path, name)
    graph = og.open(path, engine="local")
    if name in ("page_data.lance", "*.*"):
        refused(lambda: graph.nodes("P", where={"age": 3}))
    if name in ("part_0_docs.lance", "*.*"):
        refused(lambda: graph.query(SEARCH))
    assert graph.nodes("P").num_rows == 600, "a reading without indices is not refused"
    result = graph.verify()
    assert {f.code for f in result.findings} == {"checksum_mismatch"}
    assert all("--rebuild-indexes" in f.remedy for f in result.findings)
    graph.optimize()
    assert graph.nodes("P", where={"age": 3}).num_rows == 12
    assert og.open(path, engine="local").verify(full=True).ok


def test_an_index_of_another_property_is_in_nobodys_way(path: Path) -> None:
    damage(path, "part_*.lance")
    damage(path, "bitmap_page_lookup.lance")
    graph = og.open(path, engine="local")
    graph.insert({"P": [{"name": "new", "age": 3, "kind": "a", "bio": "word5"}]})
    assert graph.nodes("P", where={"age": 3}).num_rows == 13
    refused(lambda: graph.nodes("P", where={"kind": "a"}))
    refused(lambda: graph.nodes("P", where={"age": 3, "kind": "a"}))
    refused(lambda: graph.query(SEARCH))


def test_rebuild_indexes_heals_it_as_well(path: Path) -> None:
    damage(path, "*.*")
    graph = og.open(path, engine="local")
    graph.optimize(tables=["node:P"], rebuild_indexes=True)
    assert graph.nodes("P", where={"age": 3}).num_rows == 12
    assert graph.verify(full=True).ok


@pytest.mark.parametrize("name", ["page_lookup.lance", "auxiliary.idx"])
def test_verify_reports_it_without_checksums(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = damage(path, name)
    monkeypatch.setattr(Checksums, "expected", lambda *_: [])
    findings = og.open(path, engine="local").verify().findings
    assert {f.code for f in findings} == {"checksum_mismatch"}, findings
    shown = " ".join(example for f in findings for example in f.examples)
    assert any(Path(file).name in shown for file in files)
    assert "the index file is damaged" in shown


def test_a_branch_that_inherits_the_index(path: Path) -> None:
    graph = og.open(path, engine="local")
    graph.create_branch("side")
    graph.insert({"P": [{"name": "new", "age": 3}]}, branch="side")
    damage(path, "page_data.lance")
    footers._unchecked.clear()
    footers._checked_segments.clear()
    graph = og.open(path, engine="local")
    with pytest.raises(StorageError, match="the index file is damaged"):
        graph.nodes("P", where={"age": 3}, branch="side")
    graph.optimize(branch="side")
    assert graph.nodes("P", where={"age": 3}, branch="side").num_rows == 13
    refused(lambda: graph.nodes("P", where={"age": 3}))
    graph.optimize()
    assert graph.nodes("P", where={"age": 3}).num_rows == 12
    assert {f.code for f in graph.verify().findings} == {"checksum_mismatch"}, "the branch was made from the old index"
    graph.delete_branch("side")
    assert graph.verify(full=True).ok


def test_each_file_is_checked_once_and_only_if_an_index_may_be_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    real = footers.footer_problem
    monkeypatch.setattr(footers, "footer_problem", lambda file: (checked.append(file), real(file))[1])
    graph = og.open(path, engine="local")
    graph.nodes("P")
    assert not [file for file in checked if "_indices" in file]
    graph.nodes("P", where={"age": 3})
    indexed = [file for file in checked if "_indices" in file]
    assert sorted(Path(file).name for file in indexed) == ["page_data.lance", "page_lookup.lance"], "those of age"
    graph.insert({"P": [{"name": "first"}]})
    indexed = [file for file in checked if "_indices" in file]
    assert len(indexed) == len(set(indexed)) > 2
    for age in range(5):
        graph.insert({"P": [{"name": f"late{age}"}]})
        graph.nodes("P", where={"age": age})
    og.open(path, engine="local").nodes("P", where={"age": 4})
    assert [file for file in checked if "_indices" in file] == indexed
