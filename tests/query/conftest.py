from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import omnigraph as og

DOCS = Path(og.__file__).parent.parent.parent / "docs"
SCHEMA = re.findall(r"```pg\n(.*?)```", (DOCS / "query-language.md").read_text(), re.S)[0]
PEOPLE = ("ada", "bob", "cy", "dan", "eve", "flo")


@pytest.fixture(scope="session")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = og.init(tmp_path_factory.mktemp("template") / "graph", SCHEMA)
    people = [
        {
            "slug": slug,
            "name": slug.title(),
            "score": None if slug == "flo" else i,
            "active": i % 2 == 0,
            "status": ("open", "busy", None)[i % 3],
            "tags": ["all", slug] if i % 2 else None,
            "bio": f"{slug} likes running with the quick brown fox {i}" if i else None,
            "bio_vector": None if slug == "cy" else [float(i), 1.0, 0.0],
        }
        for i, slug in enumerate(PEOPLE)
    ]
    graph.insert(
        {
            "Person": people,
            "Company": [{"slug": "acme", "name": "Acme", "city": "Rome"}, {"slug": "bee", "name": "Bee"}],
            "Knows": [
                {"src": "ada", "dst": "bob", "since": "2020-01-01", "weight": 0.5},
                {"src": "ada", "dst": "bob", "since": "2021-01-01", "weight": 1.5},
                {"src": "bob", "dst": "cy"},
                {"src": "cy", "dst": "ada"},
                {"src": "cy", "dst": "dan", "since": "2022-02-02"},
                {"src": "dan", "dst": "dan"},
            ],
            "WorksWith": [{"src": "eve", "dst": "flo"}],
            "WorksAt": [
                {"src": "ada", "dst": "acme", "role": "boss"},
                {"src": "bob", "dst": "acme"},
                {"src": "eve", "dst": "bee"},
            ],
        }
    )
    return Path(graph.uri)


@pytest.fixture
def graph(_template: Path, tmp_path: Path) -> og.Graph:
    """The schema of the docs. ada → bob → cy → ada and dan, dan → dan; ada and bob twice; eve works with flo."""
    return og.open(shutil.copytree(_template, tmp_path / "graph"))


@pytest.fixture(params=["csr", "index"])
def traverse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of crossing edges, each forced."""
    monkeypatch.setenv("OMNIGRAPH_TRAVERSE", request.param)
    return str(request.param)


def rows(graph: og.Graph, match: str, columns: str, rest: str = "", **options: object) -> list[tuple[object, ...]]:
    """The rows of `query q() { match { … } return { … } … }` as tuples."""
    text = f"query q() {{ match {{ {match} }} return {{ {columns} }} {rest} }}"
    return [tuple(r.values()) for r in graph.query(text, **options).to_pylist()]  # type: ignore[arg-type]
