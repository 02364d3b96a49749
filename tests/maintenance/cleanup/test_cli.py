"""The command: options, what people read, what programs read, exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.conftest import Cli, cli  # noqa: F401 - a fixture
from tests.maintenance.cleanup.conftest import files, root_of, versions

DOCS = Path(__file__).parents[3] / "docs" / "maintenance.md"
FIELDS = {"table_key", "bytes_removed", "old_versions_removed", "error", "files", "versions"}


def test_a_preview_says_what_would_go_and_that_nothing_has(history: og.Graph, cli: Cli) -> None:  # noqa: F811
    before = files(Path(history.uri))
    shown = cli("cleanup", history.uri, "--keep", "3")
    assert shown.code == 0
    assert f"→ looking what to clean up in {history.uri}" in shown.err
    assert "node:Person" in shown.out
    assert "would remove 10 versions" in shown.out
    assert "nothing was removed: add --confirm" in shown.out
    assert files(Path(history.uri)) == before
    assert cli("cleanup", history.uri, "--keep", "3", "--plan").out == shown.out


def test_confirm_removes_and_a_local_target_needs_no_yes(history: og.Graph, cli: Cli) -> None:  # noqa: F811
    done = cli("cleanup", history.uri, "--keep", "1", "--confirm")
    assert done.code == 0, done.err
    assert "removed 14 versions" in done.out
    assert "warning: keeping 1" in done.out
    assert len(versions(root_of(history))) == 1
    again = cli("cleanup", history.uri, "--keep", "1", "--confirm", "--quiet")
    assert "there is nothing to remove" in again.out
    assert again.err == ""


def test_the_json_has_the_fields_that_are_promised(history: og.Graph, cli: Cli) -> None:  # noqa: F811
    body = cli("cleanup", history.uri, "--older-than", "0s", "--confirm", "--json", "--quiet").json
    assert body["confirmed"] is True
    assert {"tables", "reclaimed_forks", "warnings", "confirmed"} <= set(body)
    assert [t["table_key"] for t in body["tables"]] == ["node:Person", "node:Place", "edge:Knows", "__manifest"]
    for row in body["tables"]:
        assert set(row) >= FIELDS
        assert row["error"] is None
        for named in (*row["versions"], *row["files"]):
            assert {"path", "bytes", "reason"} <= set(named)
    assert body["old_versions_removed"] == sum(t["old_versions_removed"] for t in body["tables"]) == 14


def test_a_failing_table_means_exit_code_1_and_its_error_is_shown(
    history: og.Graph,
    cli: Cli,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from omnigraph.errors import StorageError
    from omnigraph.storage.objects.store import ObjectStore

    def failing(*_: object) -> None:
        raise StorageError(doing="removing", detail="no such luck")

    monkeypatch.setattr(ObjectStore, "delete_many", failing)
    told = cli("cleanup", history.uri, "--keep", "1", "--confirm")
    assert told.code == 1
    assert "no such luck" in told.out
    assert "run the same command again" in told.out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ((), "--keep N, --older-than DURATION"),
        (("--keep", "0"), "at least 1"),
        (("--older-than", "soon"), "90s, 15m"),
        (("--keep", "1", "--plan", "--confirm"), "--plan only looks"),
        (("--keep", "1", "--apply", "plan.json"), "a plan has its own policy"),
        (("--keep", "1", "--policy", "policy.yaml"), "a policy file replaces"),
    ],
)
def test_wrong_usage_is_told_with_exit_code_2(
    graph: og.Graph,
    cli: Cli,  # noqa: F811
    args: tuple[str, ...],
    told: str,
) -> None:
    refused = cli("cleanup", graph.uri, *args, "--json")
    assert refused.code == 2
    assert refused.error["condition"] == "wrong_usage"
    assert told in refused.error["message"]


def test_a_refusal_names_its_condition(history: og.Graph, cli: Cli) -> None:  # noqa: F811
    from tests.maintenance.cleanup.conftest import raw_append

    raw_append(history)
    refused = cli("cleanup", history.uri, "--keep", "1", "--confirm", "--json")
    assert (refused.code, refused.error["condition"]) == (1, "uncovered_drift")
    assert refused.error["table_key"] == "node:Person"


def test_a_policy_file_with_a_mistake_shows_the_place(
    graph: og.Graph,
    cli: Cli,  # noqa: F811
    tmp_path: Path,
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("cleanup:\n  kepe: 5\n")
    refused = cli("cleanup", graph.uri, "--policy", path, "--confirm")
    assert refused.code == 1
    assert f"{path}:2:3: kepe is not known here; did you mean keep?" in refused.err


def test_a_plan_goes_through_a_file_unchanged(history: og.Graph, cli: Cli, tmp_path: Path) -> None:  # noqa: F811
    plan = cli("cleanup", history.uri, "--keep", "2", "--plan", "--json", "--quiet")
    path = tmp_path / "plan.json"
    path.write_text(plan.out)
    done = cli("cleanup", history.uri, "--apply", path, "--confirm", "--json", "--quiet").json
    assert done["old_versions_removed"] == plan.json["old_versions_removed"] > 0
    assert [t["files"] for t in done["tables"]] == [t["files"] for t in plan.json["tables"]]
    path.write_text("{")
    broken = cli("cleanup", history.uri, "--apply", path, "--confirm", "--json")
    assert (broken.code, broken.error["condition"]) == (1, "plan_unusable")


def test_the_preview_in_the_docs_is_what_the_command_shows(
    tmp_path: Path,
    cli: Cli,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = og.init("people", "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n")
    for day in range(30):
        graph.upsert({"Person": [{"name": f"p{day % 10}", "age": day}]})
    graph.create_branch("review/anna")
    graph.upsert({"Person": [{"name": "anna"}]}, branch="review/anna")
    graph.create_branch("trial")
    graph.upsert({"Person": [{"name": "x"}]}, branch="trial")
    graph.delete_branch("trial")
    for day in range(12):
        graph.upsert({"Person": [{"name": f"q{day}", "age": day}]})
    text = DOCS.read_text().split("<!-- cleanup preview -->\n```\n")[1].split("```")[0]
    assert _shape(cli("cleanup", "people", "--keep", "10").out) == _shape(text)


def _shape(text: str) -> str:
    """Without what chance decides: names of forks, and sizes to the byte."""
    return re.sub(r"[\d.]+ KiB", "KiB", re.sub(r"fork [0-9a-f-]+ ", "fork ", text))


@pytest.mark.parametrize("verb", ["snapshot", "export"])
def test_a_collected_state_is_told_as_such_before_anything_of_it_is_shown(
    history: og.Graph,
    cli: Cli,  # noqa: F811
    verb: str,
) -> None:
    old = history.commits()[8].id
    assert cli(verb, history.uri, "--commit", old).code == 0
    history.cleanup(keep=1, confirm=True)
    refused = cli(verb, history.uri, "--commit", old)
    assert refused.code == 1
    assert refused.out == ""
    assert "was removed" in refused.err
