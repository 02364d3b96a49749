"""One run of maintenance: its order, its independence of failing steps, its budget, its report."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.errors import FileUnreadable, PolicyFileError, StorageError, UsageError
from omnigraph.maintenance.maintain import run as module
from omnigraph.maintenance.maintain.policy import MaintainPolicy, parse_maintain_policy, policy_of
from tests.commit import plant
from tests.maintenance.verify import damage
from tests.support.dead_owners import gone

SCHEMA = """
node Person { name: String @key  age: I32? @index }
node City { name: String @key }
edge Knows: Person -> Person
"""
STEPS = ["recover", "verify", "optimize", "cleanup"]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = og.init(tmp_path_factory.mktemp("template") / "g", SCHEMA)
    graph.insert({"City": [{"name": "Bonn"}]})
    for i in range(10):
        people = [{"name": f"p{i}-{j}", "age": j} for j in range(3)]
        graph.insert({"Person": people, "Knows": [{"src": f"p{i}-0", "dst": f"p{i}-1"}]})
    return Path(graph.uri)


@pytest.fixture
def graph(template: Path, tmp_path: Path) -> og.Graph:
    """A graph after a day of small writes: ten fragments in two tables, one in the third."""
    return og.open(shutil.copytree(template, tmp_path / "g"))


def commits(graph: og.Graph) -> list[str]:
    return [c.id for c in og.open(graph.uri).commits(limit=100)]


def people(graph: og.Graph) -> int:
    return int(og.open(graph.uri).snapshot().count("Person"))


def test_the_steps_run_in_their_order_and_leave_the_graph_tidy(graph: og.Graph) -> None:
    plant.lock(Path(graph.uri), {"nonce": "planted", "owner": gone(), "tables": [], "kind": "load"})
    result = graph.maintain(keep=1, confirm=True)
    assert [step.name for step in result.steps] == STEPS
    assert [step.outcome for step in result.steps] == ["done"] * 4
    assert result.ok
    settled = (result.step("recover").result or {})["settled"]
    assert [(s["kind"], s["outcome"]) for s in settled] == [("load", "rolled_back")]
    figures = result.figures[0]
    assert figures.before is not None
    assert figures.after is not None
    assert (figures.before.fragments, figures.after.fragments) == (21, 3)
    assert (figures.before.coverage, figures.after.coverage) == (0.0, 1.0)
    assert figures.before.pending_dead == 1
    assert figures.after.pending == 0
    assert figures.after.versions == 3, "one of each table"
    assert people(graph) == 30
    assert og.open(graph.uri).verify(full=True).findings == ()


def test_nothing_to_do_makes_no_commit_and_removes_nothing(graph: og.Graph) -> None:
    graph.maintain(keep=1, confirm=True)
    before = commits(graph)
    files = {name: body for name, body in damage.files(graph) if not name.startswith("__")}
    result = og.open(graph.uri).maintain(keep=1, confirm=True)
    assert [step.outcome for step in result.steps] == ["nothing", "done", "nothing", "nothing"]
    assert result.ok
    assert commits(graph) == before
    assert {name: body for name, body in damage.files(graph) if not name.startswith("__")} == files


@pytest.mark.parametrize("failing", STEPS)
def test_a_step_that_fails_does_not_stop_the_others(
    graph: og.Graph, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise StorageError(doing="looking", detail="the disk is on fire")

    monkeypatch.setattr(*((module.Optimize, "run") if failing == "optimize" else (module, failing)), fail)
    result = graph.maintain(keep=1, confirm=True)
    assert [step.name for step in result.steps] == STEPS
    assert not result.ok
    step = result.step(failing)  # type: ignore[arg-type]
    assert step.outcome == "failed"
    assert (step.error or {})["condition"] == StorageError.condition
    assert "the disk is on fire" in step.summary
    assert all(s.ok for s in result.steps if s.name != failing)
    expected = {"recover": "done", "verify": "previewed", "optimize": "previewed", "cleanup": "failed"}
    assert result.step("cleanup").outcome == expected[failing], "what may be lost is not removed"
    assert (result.step("optimize").outcome == "done") == (failing != "optimize")


def test_a_bug_in_a_step_is_reported_and_does_not_stop_the_others(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("so far")

    monkeypatch.setattr(module, "verify", fail)
    result = graph.maintain(keep=1, confirm=True)
    assert (result.step("verify").error or {})["condition"] == "internal_error"
    assert [step.outcome for step in result.steps] == ["nothing", "failed", "done", "previewed"]
    assert main(["maintain", graph.uri, "--quiet"]) == 1


def test_a_table_that_drifted_is_skipped_and_the_others_are_optimized(graph: og.Graph) -> None:
    damage.newest(graph, "Person").delete("id = 'p0-0'")
    result = graph.maintain(keep=1, confirm=True)
    assert not result.ok
    assert result.step("verify").outcome == "problems"
    assert any("omnigraph repair" in note for note in result.step("verify").notes)
    optimized = result.step("optimize")
    assert optimized.outcome == "done"
    assert any("node:Person was skipped" in note for note in optimized.notes)
    after = {t.table_key: t.fragments for t in result.figures[0].after.tables}  # type: ignore[union-attr]
    assert after == {"node:Person": 10, "node:City": 1, "edge:Knows": 1}
    cleaned = result.step("cleanup")
    assert (cleaned.error or {})["condition"] == "uncovered_drift", "its own rule, not that of maintain"


def test_where_data_is_missing_older_versions_stay(graph: og.Graph) -> None:
    table = damage.newest(graph, "Person")
    file = "".join(table.get_fragments()[0].data_files()[0].path)
    next(Path(graph.uri).rglob(file)).unlink()
    result = og.open(graph.uri).maintain(keep=1, confirm=True)
    assert result.step("verify").outcome == "problems"
    cleaned = result.step("cleanup")
    assert cleaned.outcome == "previewed"
    assert cleaned.result is not None
    assert not cleaned.result["confirmed"]
    assert cleaned.result["old_versions_removed"] > 0, "it would, and holds back"
    assert "missing_file" in cleaned.notes[0]
    optimized = result.step("optimize")
    assert optimized.outcome == "problems"
    assert any("node:Person failed" in note for note in optimized.notes)
    after = {t.table_key: t.fragments for t in result.figures[0].after.tables}  # type: ignore[union-attr]
    assert after == {"node:Person": 10, "node:City": 1, "edge:Knows": 1}, "the other tables were merged"


def test_without_retention_or_without_confirmation_cleanup_only_looks(graph: og.Graph) -> None:
    versions = graph.stats().versions
    result = graph.maintain(confirm=True)
    assert result.step("cleanup").outcome == "previewed"
    assert "no retention is configured" in result.step("cleanup").notes[0]
    assert result.ok
    result = graph.maintain(keep=1)
    assert result.step("cleanup").outcome == "previewed"
    assert "add --confirm" in result.step("cleanup").notes[0]
    assert graph.stats().versions > versions


def test_branches_are_chosen_by_name_and_pattern_and_each_is_a_step_of_its_own(graph: og.Graph) -> None:
    for name in ("review/a", "review/b", "other"):
        graph.create_branch(name)
        graph.upsert({"City": [{"name": name}]}, branch=name)
    result = graph.maintain(branches=["review/*", "main", "gone"])
    optimized = [s for s in result.steps if s.name == "optimize"]
    assert [s.branch for s in optimized] == ["main", "review/a", "review/b", "gone"]
    assert [s.outcome for s in optimized] == ["done", "done", "done", "failed"]
    assert (optimized[3].error or {})["condition"] == "branch_not_found"
    assert result.figures[3].error is not None
    assert result.step("cleanup").outcome == "previewed"
    kinds = {b: og.open(graph.uri).commits(branch=b, limit=1)[0].kind for b in ("main", "review/a", "other")}
    assert kinds == {"main": "optimize", "review/a": "optimize", "other": "write"}


def test_a_pattern_that_matches_no_branch_is_told_and_main_is_measured_all_the_same(graph: og.Graph) -> None:
    result = graph.maintain({"optimize": {"branches": ["zz*"]}})
    assert [step.name for step in result.steps] == STEPS
    optimized = result.step("optimize")
    assert (optimized.outcome, optimized.summary, optimized.branch) == ("nothing", "no branch matches zz*", None)
    assert result.ok
    (figures,) = result.figures
    assert (figures.branch, figures.error) == ("main", None)
    both = graph.maintain(branches=["main", "zz*", "yy?"])
    assert [s.branch for s in both.steps if s.name == "optimize"] == ["main", None, None]
    assert [f.branch for f in both.figures] == ["main"]


def test_the_budget_limits_what_optimize_reads_over_all_branches(graph: og.Graph) -> None:
    graph.create_branch("side")
    graph.upsert({"Person": [{"name": "forked"}]}, branch="side")
    work = [t for t in graph.plan_optimize().tables if t.has_work]
    result = graph.maintain(
        branches=["main", "side"], max_bytes=max(1, min(b.read_bytes for t in work for b in t.bins))
    )
    assert result.ok
    assert any("left for a later run" in note for note in result.step("optimize", "main").notes)
    side = result.step("optimize", "side")
    assert side.outcome == "nothing" or any("left for a later run" in note for note in side.notes)
    assert any(t.fragments > 1 for t in result.figures[0].after.tables)  # type: ignore[union-attr]
    rest = og.open(graph.uri).maintain(branches=["main", "side"])
    assert all(t.fragments == 1 for f in rest.figures for t in f.after.tables)  # type: ignore[union-attr]


def test_slow_steps_do_not_starve_optimize_and_a_spent_budget_does_not_stop_cleanup(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    real, given = module.verify, []

    def slow(*args: Any, **options: Any) -> Any:
        found = real(*args, **options)
        clock[0] += 1000
        return found

    monkeypatch.setattr(module, "verify", slow)
    run = module.Optimize.run

    def seen(self: Any, options: Any, *args: Any) -> Any:
        given.append(options.max_time_s)
        monkeypatch.undo()
        return run(self, options, *args)

    monkeypatch.setattr(module.Optimize, "run", seen)
    result = graph.maintain(max_time_s=100.0, keep=1, confirm=True)
    assert given == [pytest.approx(25.0)], "a quarter of the time, though all of it is spent"
    assert result.step("cleanup").outcome == "done"


# ---- policy ----------------------------------------------------------------------------------------------------------

POLICY = """
optimize:
  branches: [main, "review/*"]
  tables: [Person]
  target_rows_per_fragment: 1000
verify: {depth: sample, orphans_older_than: 9d}
budget: {max_time: 30m, max_bytes: 20GiB, max_rows: 5000}
cleanup: {keep: 10, older_than: 30d, branches: {"tmp/*": {keep: 1}}}
"""


def test_one_policy_file_serves_all_steps_and_cleanup_alone(tmp_path: Path) -> None:
    from omnigraph.maintenance.cleanup.policy import parse_policy

    found = parse_maintain_policy(POLICY)
    assert found.optimize.branches == ("main", "review/*")
    assert found.optimize.tables == ("Person",)
    assert (found.verify.depth, found.verify.orphans_older_than_s) == ("sample", 9 * 86_400.0)
    assert (found.budget.max_time_s, found.budget.max_bytes, found.budget.max_rows) == (1800.0, 20 << 30, 5000)
    assert found.retention == parse_policy(POLICY)
    assert policy_of(found.to_json()) == found, "what the report tells can be used again"
    assert parse_maintain_policy("keep: 3").retention == parse_policy("keep: 3")
    assert parse_maintain_policy("budget: {max_time: 5m}").retention is None
    assert policy_of({}) == MaintainPolicy()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("optimise: {branches: [main]}\ncleanup: {keep: 3}", "optimise is not known here; did you mean optimize?"),
        ("optimise: {branches: [main]}", "optimise is not known here; did you mean optimize?"),
        ("kep: 3", "kep is not known here; did you mean keep?"),
        ("zzz: 3", "zzz is not known here; there is optimize, verify, budget, cleanup, keep, older_than,"),
        ("optimize: {branch: main}", "branch is not known here; did you mean branches?"),
        ("optimize: [main]", "optimize is a mapping"),
        ("verify: {depth: deep}", "depth is one of quick, sample, full."),
        ("budget: {max_time: soon}", "max_time is a number and a unit"),
        ("budget: {max_bytes: much}", "max_bytes is a size like"),
        ("budget: {max_rows: 0}", "max_rows is a number of at least 1."),
        ("cleanup: {keep: 0}", "keep is a number of versions"),
        ("keep: 3\noptimize: {}", "keep is not known here"),
        ("- keep", "a policy file is a mapping"),
    ],
)
def test_a_policy_file_is_read_strictly_and_mistakes_have_a_place(text: str, told: str) -> None:
    with pytest.raises(PolicyFileError, match=re.escape(told)) as caught:
        parse_maintain_policy(text, file="policy.yaml")
    assert caught.value.fields["line"] >= 1


@pytest.mark.parametrize("section", ["{}", "{orphans_older_than: 9d}", "{branches: {}}"])
def test_a_cleanup_section_that_says_nothing_is_told_at_its_place(section: str) -> None:
    with pytest.raises(PolicyFileError, match="it keeps everything") as caught:
        parse_maintain_policy(f"verify: {{depth: quick}}\ncleanup: {section}\n", file="policy.yaml")
    assert (caught.value.fields["line"], caught.value.fields["column"]) == (2, 1)


def test_retention_is_said_once(graph: og.Graph, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leave --keep"):
        graph.maintain({"cleanup": {"keep": 3}}, keep=1)
    with pytest.raises(FileUnreadable):
        graph.maintain(tmp_path / "nowhere.yaml")


# ---- the report ------------------------------------------------------------------------------------------------------


def test_the_json_is_the_documented_contract(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["maintain", graph.uri, "--keep", "1", "--confirm", "--json", "--quiet"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    body = json.loads(told.out)
    assert set(body) == {
        *("graph", "ok", "started_at", "seconds", "confirmed", "policy", "steps", "figures"),
    }
    assert (body["graph"], body["ok"], body["confirmed"]) == (graph.uri, True, True)
    assert [s["step"] for s in body["steps"]] == STEPS
    for step in body["steps"]:
        assert set(step) == {"step", "branch", "outcome", "summary", "notes", "error", "seconds", "result"}
    by_name = {s["step"]: s["result"] for s in body["steps"]}
    assert set(by_name["recover"]) == {"ok", "settled", "pending", "waited_s"}
    assert set(by_name["verify"]) == {"ok", "checked", "findings", "engine", "seconds"}
    assert by_name["optimize"]["commit"]["actor"] == "omnigraph:optimize"
    assert by_name["cleanup"]["confirmed"] is True
    assert {"table_key", "bytes_removed", "old_versions_removed", "files_removed", "error"} <= set(
        by_name["cleanup"]["tables"][0]
    )
    assert "files" not in by_name["cleanup"]["tables"][0], "a report for every night does not name every file"
    (figures,) = body["figures"]
    assert set(figures) == {"branch", "before", "after", "error"}
    assert (figures["before"]["fragments"], figures["after"]["fragments"]) == (21, 3)


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.plots: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [f"{k}={v}" for k, v in attrs if k in ("src", "href", "xlink:href", "data", "action")]
        if tag not in ("meta", "br"):
            self.open.append(tag)
        if tag == "svg":
            self.plots[dict(attrs)["aria-label"] or ""] = []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "tags are closed in their order"

    def handle_data(self, data: str) -> None:
        if "svg" in self.open and self.open[-1] == "text":
            self.plots[list(self.plots)[-1]].append(data)


def test_the_page_needs_nothing_else_and_plots_every_table_before_and_after(graph: og.Graph, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert main(["maintain", graph.uri, "--html", str(out), "--quiet"]) == 0
    text = out.read_text()
    page = _Page(text)
    assert page.open == []
    assert page.addresses == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not re.findall(r"https?:|url\(|@import|//", text.replace(graph.uri, ""))
    assert set(page.plots) == {"fragments", "bytes on disk", "versions", "index coverage"}
    for name, shown in page.plots.items():
        keys = {"node:Person", "node:City", "edge:Knows"} | ({"__manifest"} if name != "index coverage" else set())
        assert keys <= set(shown), name
    assert page.plots["fragments"][:3] == ["node:Person", "10", "1"]
    assert page.plots["index coverage"][:3] == ["node:Person", "0 %", "100 %"]
    for step in STEPS:
        assert step in text


def test_what_comes_from_the_graph_can_not_break_the_page(graph: og.Graph) -> None:
    result = graph.maintain(branches=["a&b", "<script>alert(1)</script>"])
    text = result.to_html()
    _Page(text)
    assert "<script>" not in text
    assert "Branch a&amp;b" in text


def test_people_see_steps_and_figures_and_where_the_report_is(
    graph: og.Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert main(["maintain", graph.uri, "--html", str(out)]) == 0
    told = capsys.readouterr()
    assert f"→ maintaining {graph.uri}" in told.err
    lines = told.out.splitlines()
    assert [line.split(":")[0] for line in lines if re.match(r"\w+( main)?: (done|nothing|previewed)", line)] == [
        *("recover", "verify", "optimize main", "cleanup")
    ]
    assert any(re.match(r"node:Person +10 → 1 .* 0 % → 100 %$", line) for line in lines)
    assert lines[-1] == f"report: {out}"
    assert main(["maintain", graph.uri, "--html", str(tmp_path / "no" / "report.html"), "--quiet"]) == 1
    assert not (tmp_path / "no").exists()


def test_removing_on_a_target_that_is_not_local_needs_yes(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["maintain", "s3://bucket/people", "--keep", "3", "--confirm", "--json"]
    assert main(given) == 2
    assert json.loads(capsys.readouterr().out)["error"]["condition"] == "consent_required"


@pytest.mark.parametrize("flag", ["--server", "--target", "--as"])
def test_it_is_a_direct_command(graph: og.Graph, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["maintain", graph.uri, flag, "x", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["condition"] in ("direct_only", "wrong_usage")
