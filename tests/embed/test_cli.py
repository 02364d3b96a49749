"""The command: what people read, the JSON that scripts rely on, and a page of documentation that is true."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from tests.embed.conftest import posts

PAGE = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text(encoding="utf-8")
Said = tuple[int, str, str]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def run(*args: object) -> Said:
        code = main([str(a) for a in args])
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


def test_people_read_what_was_embedded_and_what_was_not(graph: og.Graph, cli: Callable[..., Said]) -> None:
    graph.insert({"Post": [*posts(3), {"key": "blank"}], "Tag": [{"name": "red"}]})
    code, out, err = cli("embed", graph.uri, "--engine", "local")
    assert code == 0
    commit = graph.snapshot().commit
    assert re.match(rf"embedded 4 vectors by local in \d+\.\d s, 1 commit, the last is {commit}\n", out)
    assert "node:Post         3        0" in out
    assert "1 row has no text" in out
    assert err.startswith(f"→ embedding in {graph.uri} (branch main)\n")
    assert "→ engine local: as asked for" in err
    code, out, _ = cli("embed", graph.uri)
    assert (code, out.splitlines()[0]) == (0, "nothing to embed on main; no commit was made")


def test_the_json_is_a_contract(graph: og.Graph, cli: Callable[..., Said]) -> None:
    graph.insert({"Post": posts(2)})
    code, out, err = cli("embed", graph.uri, "--as", "anna", "--commit-every", 1, "--json", "--quiet")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert list(document) == [
        *("branch", "commits", "embedded", "cleared", "skipped", "models", "provider", "seconds"),
    ]
    assert [c["kind"] for c in document["commits"]] == ["embed", "embed"]
    assert {c["actor"] for c in document["commits"]} == {"anna"}
    assert document["embedded"] == {"node:Post": 2}
    assert document["skipped"] == {"given": 0, "without_text": 0, "changed_meanwhile": 0}
    assert document["models"]["node:Post.vector"] == "wordllama-l2-supercat"


@pytest.mark.parametrize(
    ("options", "condition", "code"),
    [
        (["--provider", "nobody"], "wrong_usage", 2),
        (["--type", "Nobody"], "unknown_type", 1),
        (["--provider", "openai"], "embedding_key_missing", 1),
        (["--model", "other"], "embedding_mismatch", 1),
        (["--branch", "nowhere"], "branch_not_found", 1),
    ],
)
def test_failures_have_names(
    graph: og.Graph, cli: Callable[..., Said], options: list[str], condition: str, code: int
) -> None:
    graph.insert({"Post": posts(1)})
    found, out, _ = cli("embed", graph.uri, *options, "--json")
    assert found == code
    assert json.loads(out)["error"]["condition"] == condition


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    schema, code = (re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in ("", "python"))
    assert schema is not None
    assert code is not None
    (tmp_path / "posts.pg").write_text(schema.group(1))
    exec(code.group(1), {})
    expected = re.search(r"# (\{.*)\n", code.group(1))
    assert expected is not None
    assert capsys.readouterr().out.strip() == expected.group(1)


def test_the_page_names_every_provider_with_its_defaults() -> None:
    from omnigraph.pipeline.embed.provider import KINDS

    for name, kind in KINDS.items():
        assert f"| `{name}`" in PAGE
        assert f"`{kind.model}`" in PAGE
        assert kind.key is None or f"`{kind.key}`" in PAGE
