"""Policies: durations, rules by branch, and files whose mistakes are told with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.config.durations import parse_duration
from omnigraph.errors import FileUnreadable, PolicyFileError, UsageError
from omnigraph.maintenance.cleanup.policy import Policy, Rule, make_policy, parse_policy, policy_from_json
from tests.maintenance.cleanup.conftest import folder_of, root_of, versions

FILE = """
keep: 10
older_than: 30d
orphans_older_than: 14d
manifest_older_than: 1h
branches:
  main: {keep: 100, older_than: 90d}
  "tmp/*": {keep: 1}
  "*": {older_than: 12h}
"""


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600), ("0s", 0)]
)
def test_durations_have_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "7 days", "-7d", "1.5d", "7D"])
def test_anything_else_is_refused_with_the_forms_that_are_known(text: str) -> None:
    with pytest.raises(UsageError, match="90s, 15m, 12h, 7d or 2w"):
        make_policy(older_than=text)


def test_a_name_is_stronger_than_a_pattern_and_patterns_come_in_the_order_of_the_file() -> None:
    policy = parse_policy(FILE)
    assert policy.rule("main") == Rule(100, 90 * 86_400)
    assert policy.rule("tmp/a/b") == Rule(1, None)
    assert policy.rule("review") == Rule(None, 12 * 3600)
    assert (policy.orphans_older_than_s, policy.manifest_older_than_s) == (14 * 86_400, 3600)
    assert policy_from_json(policy.to_json()) == policy


def test_everything_may_stand_below_cleanup_beside_sections_of_others() -> None:
    indented = "".join(f"  {line}\n" for line in FILE.strip().splitlines())
    assert parse_policy(f"optimize:\n  max_time: 1h\ncleanup:\n{indented}") == parse_policy(FILE)


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("keep: ten", 1, "keep is a number of versions"),
        ("keep: 0", 1, "at least 1"),
        ("keep: 5\nkeep: 6", 2, "keep stands here a second time"),
        ("older_than: 7", 1, "90s, 15m"),
        ("kepe: 5", 1, "did you mean keep?"),
        ("cleanpu: {keep: 1}", 1, "did you mean cleanup?"),
        ("branches:\n  main: {kep: 1}", 2, "did you mean keep?"),
        ("branches:\n  main: {}", 2, "is empty"),
        ("branches: [main]", 1, "branches maps names"),
        ("keep: 1\norphans_older_than: 1d", 2, "at least 4d"),
        ("keep: 1\nmanifest_older_than: 1m", 2, "at least 5m"),
        ("orphans_older_than: 9d", 1, "keeps everything"),
        ("- keep", 1, "a policy file is a mapping"),
        ("keep: &a 5", 1, "are not part of a policy file"),
    ],
)
def test_a_mistake_in_a_policy_file_is_told_with_its_place(text: str, line: int, told: str) -> None:
    with pytest.raises(PolicyFileError) as refusal:
        parse_policy(text, file="policy.yaml")
    assert refusal.value.condition == "policy_file"
    assert (refusal.value.fields["file"], refusal.value.fields["line"]) == ("policy.yaml", line)
    assert told in refusal.value.fields["detail"]


def test_a_file_that_is_not_there_is_told(graph: og.Graph, tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable):
        graph.cleanup(policy=tmp_path / "none.yaml")


def test_a_policy_and_limits_exclude_each_other(graph: og.Graph) -> None:
    with pytest.raises(UsageError, match="--keep and --older-than"):
        graph.cleanup(policy=Policy(Rule(1)), keep=1)


@pytest.mark.parametrize("keep", [0, -1])
def test_at_least_one_version_is_kept(graph: og.Graph, keep: int) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        graph.cleanup(keep=keep)


def test_every_branch_is_kept_by_its_own_rule(history: og.Graph, tmp_path: Path) -> None:
    for name in ("tmp/a", "work", "other"):
        history.create_branch(name)
        for i in range(5):
            history.upsert({"Person": [{"name": f"x{i}"}]}, branch=name)
    path = tmp_path / "policy.yaml"
    path.write_text("branches:\n  main: {keep: 4}\n  'tmp/*': {keep: 1}\n  w*: {keep: 2}\n")
    kept = versions(folder_of(history, branch="other"))
    history.cleanup(policy=path, confirm=True)
    assert len(versions(root_of(history))) == 4
    assert len(versions(folder_of(history, branch="tmp/a"))) == 1
    assert len(versions(folder_of(history, branch="work"))) == 2
    assert versions(folder_of(history, branch="other")) == kept, "no rule, nothing goes"


@pytest.mark.parametrize("key", ["older_than: 90d", "keep: 3", "branches: {main: {keep: 3}}"])
def test_a_limit_beside_the_section_is_refused_and_not_ignored(key: str) -> None:
    with pytest.raises(PolicyFileError, match="it belongs below cleanup") as refused:
        parse_policy(f"{key}\ncleanup:\n  keep: 3\n")
    assert refused.value.fields["line"] == 1


def test_a_section_that_no_command_knows_is_refused() -> None:
    with pytest.raises(PolicyFileError, match="did you mean optimize"):
        parse_policy("optimise: {branches: [main]}\ncleanup: {keep: 3}\n")


def test_a_pattern_that_an_earlier_one_hides_is_warned_of() -> None:
    policy = parse_policy('branches: {"tmp/*": {keep: 5}, "tmp/keep*": {keep: 50}, main: {keep: 5}}')
    assert policy.warnings == [
        "the rule of tmp/keep* is never used: tmp/* comes before it and is for the same branches"
    ]


@pytest.mark.parametrize(("limits", "warned"), [({"older_than": "0s"}, True), ({"older_than": "2h"}, False)])
def test_keeping_next_to_nothing_by_time_is_warned_of_as_by_number(limits: dict[str, str], warned: bool) -> None:
    assert any("less than 1h ago" in w for w in make_policy(**limits).warnings) is warned
