"""The report of a run: a page that can be read on any screen, and one JSON document whatever goes wrong."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.errors import StorageError
from omnigraph.maintenance.maintain import run as module
from omnigraph.maintenance.maintain.report import Bar, bars
from tests.maintenance.verify import damage
from tests.support.graphs import Templates

LONG = "AVeryLongNameOfATypeThatSomebodyMade"
SCHEMA = f"""
node Person {{ name: String @key  age: I32? @index }}
node {LONG}1 {{ name: String @key }}
node {LONG}2 {{ name: String @key }}
"""
GLYPH = 11 * 0.65
"""No font of one width has wider letters than this, at 11 px."""


def _build(path: Path) -> og.Graph:
    graph = og.init(path, SCHEMA)
    for i in range(3):
        graph.insert({"Person": [{"name": f"p{i}", "age": i}], f"{LONG}1": [{"name": f"a{i}"}]})
    return graph


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(_build, tmp_path / "g")


class _Page(HTMLParser):
    """The cells of its tables row by row, the names in its plots, and what each table stands in."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.around: list[dict[str, str | None]] = []
        self.rows: list[list[str]] = []
        self.names: list[tuple[float, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.around.append(self.open[-1][1])
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag != "meta":
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()

    def handle_data(self, data: str) -> None:
        tag, attrs = self.open[-1] if self.open else ("", {})
        if tag == "text" and attrs.get("class") == "name":
            self.names.append((float(attrs["x"] or 0), data))
        if any(name in ("td", "th") for name, _ in self.open):
            self.rows[-1][-1] += data


def test_names_in_plots_are_whole_or_shortened_to_what_fits(graph: og.Graph) -> None:
    text = graph.maintain().to_html()
    names = _Page(text + bars("t", [Bar("x" * n, 1, 1) for n in range(1, 60)], str)).names
    assert {"node:Person", "__manifest"} < {name for _, name in names}
    for right, name in names:
        assert right - len(name) * GLYPH >= 0, f"{name} would be cut by the left edge"
    assert re.search(r"svg text\.name \{[^}]*monospace", text), "the reckoning is for letters of one width"
    assert f"<title>node:{LONG}1</title>" in text, "the whole name is there to be pointed at"


def test_tables_scroll_by_themselves_on_a_narrow_screen(graph: og.Graph) -> None:
    damage.newest(graph, "Person").delete("id = 'p0'")
    text = graph.maintain().to_html()
    page = _Page(text)
    assert len(page.around) == 3, "steps, figures, findings"
    assert {attrs.get("class") for attrs in page.around} == {"scroll"}
    assert ".scroll { overflow-x: auto; }" in text
    assert "minmax(min(30rem, 100%), 1fr)" in text, "plots are no wider than the screen"


def test_the_manifest_is_in_the_table_as_it_is_in_the_plots(graph: og.Graph) -> None:
    result = graph.maintain()
    page = _Page(result.to_html())
    heads = next(row for row in page.rows if row[0] == "table")
    row = dict(zip(heads, next(row for row in page.rows if row[0] == "__manifest"), strict=True))
    before, after = result.figures[0].before, result.figures[0].after
    assert before is not None
    assert after is not None
    assert row["versions"] == f"{before.manifest_versions} → {after.manifest_versions}"
    assert row["fragments"]
    assert row["on disk"]
    assert (row["rows"], row["coverage"]) == ("", "")


# ---- JSON ------------------------------------------------------------------------------------------------------------


def fail(*_: Any, **__: Any) -> None:
    raise StorageError(doing="looking", detail="the disk is on fire")


def slip(*_: Any, **__: Any) -> None:
    raise ZeroDivisionError("so far")


@pytest.mark.parametrize("how", [fail, slip])
@pytest.mark.parametrize("what", ["stats", "recover", "verify", "cleanup"])
def test_a_run_in_which_something_fails_is_one_document(
    graph: og.Graph, what: str, how: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, what, how)
    code = main(["maintain", graph.uri, "--keep", "1", "--confirm", "--engine", "local", "--quiet", "--json"])
    told = capsys.readouterr()
    body = json.loads(told.out)
    assert told.err == ""
    assert [s["step"] for s in body["steps"]] == ["recover", "verify", "optimize", "cleanup"]
    if what == "stats":
        assert (code, body["figures"][0]["before"]) == (0, None)
        assert body["figures"][0]["error"]
    else:
        assert (code, body["ok"]) == (1, False)


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        (("--html", "{folder}"), "file_unwritable"),
        (("--html", "{folder}/no/report.html"), "file_unwritable"),
        (("--policy", "{folder}/none.yaml"), "file_unreadable"),
        (("--max-time", "soon"), "wrong_usage"),
        (("--max-bytes", "0"), "wrong_usage"),
        (("--keep", "0"), "wrong_usage"),
        (("--nonsense",), "wrong_usage"),
    ],
)
def test_a_run_that_does_not_begin_is_one_document(
    graph: og.Graph, tmp_path: Path, options: tuple[str, ...], condition: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(damage.files(graph))
    given = [one.format(folder=tmp_path) for one in options]
    assert main(["maintain", graph.uri, *given, "--confirm", "--quiet", "--json"]) != 0
    told = capsys.readouterr()
    assert told.err == ""
    assert json.loads(told.out)["error"]["condition"] == condition
    assert dict(damage.files(graph)) == before


def test_two_runs_at_once_are_both_right(graph: og.Graph) -> None:
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(og.open(graph.uri, engine="local").maintain, {"cleanup": {"keep": 1}}, confirm=True)
            for _ in range(2)
        ]
        results = [one.result() for one in runs]
    assert [[s.summary for s in r.steps if not s.ok] for r in results] == [[], []]
    assert og.open(graph.uri, engine="local").verify(full=True).ok
