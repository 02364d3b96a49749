"""The demo as people run it: every claim it makes is checked by itself, small here; and it minds its folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from omnigraph.cli.commands.demo import _places
from omnigraph.demo.query_story import Answer, Question, QuestionTimes, compare
from omnigraph.demo.story import MARK, prepare_folder
from omnigraph.errors import UsageError

pytestmark = pytest.mark.slow


def demo(*args: str, home: Path) -> subprocess.CompletedProcess[str]:
    """`omnigraph demo`, with an empty home and from a folder that is not the repository."""
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "TMPDIR") if name in os.environ}
    command = [sys.executable, "-m", "omnigraph.cli.main", "demo", "--scale", "0.005", "--engine", "local", *args]
    environment = {**kept, "HOME": str(home), "OMNIGRAPH_FSYNC": "off"}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=home, env=environment)


def test_the_demo_tells_its_story_and_keeps_its_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    done = demo("--keep", "kept", home=home)
    assert done.returncode == 0, done.stdout + done.stderr
    for told in (
        "invalid on purpose",
        "All of them were found",
        "no commit is made",
        "vectors in",
        "recovered its operation",
        "its advice, among others: run omnigraph optimize",
        "all tables in one commit",
        "the plan: ",
        "node:Company    Delete: suspicious, refused",
        "node:Tag        CreateIndex: verified maintenance, published",
        ": no errors.",
        f"The report, with plots of every table before and after: {home / 'kept' / 'report.html'}",
        "12. Questions, asked before and after the optimize of step 7. The rows are the same",
        "traversal: where do the people work",
        "full text: which posts mention",
        "vector: which posts are about",
        "hybrid: both,",
        "13. An agent corrects cities",
        "1 conflict; nothing was changed",
        "merged agent/cities into main (three-way), ",
        "Done in",
    ):
        assert told in done.stdout
    took = re.findall(r"before optimize [\d.,]+ ms, again [\d.,]+ ms; after it [\d.,]+ ms, again", done.stdout)
    assert len(took) == 4
    assert "→ engine local: as asked for" in done.stderr
    assert "reading: " in done.stderr
    kept = home / "kept"
    made = {"pipeline.yaml", "social.pg", "graph", "rejects.jsonl", "people.csv", "report.html", "questions.gq"}
    made.add("conflicts.jsonl")
    assert made <= {p.name for p in kept.iterdir()}
    assert "<svg" in (kept / "report.html").read_text()


@pytest.mark.long
def test_the_demo_can_be_run_again_in_its_folder_and_tells_what_it_found_as_json(tmp_path: Path) -> None:
    home = tmp_path / "home"
    kept = home / "kept"
    kept.mkdir(parents=True)
    (kept / MARK).write_text("")
    (kept / "rejects.jsonl").write_text("of an earlier run")
    again = demo("--keep", "kept", "--json", "--quiet", "--seed", "8", home=home)
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stderr == ""
    report = json.loads(again.stdout)
    assert report["seed"] == 8
    assert report["vectors"] == report["rows"]["node:Post"]
    assert sum(report["rejected_by_rule"].values()) == len((kept / "rejects.jsonl").read_text().splitlines())
    assert report["healed"] == "rolled forward"
    upkeep = report["upkeep"]
    assert upkeep["commits"] >= 40
    assert upkeep["fragments"][0] > upkeep["fragments"][1] == 9, "one of every table"
    assert upkeep["coverage"] == [0.0, 1.0]
    assert upkeep["versions_removed"] > 0
    assert upkeep["bytes_on_disk"][0] > upkeep["bytes_on_disk"][1]
    assert upkeep["drift"] == {"node:Company": "suspicious", "node:Tag": "verified_maintenance"}
    assert upkeep["errors"] == 0
    assert [asked["name"] for asked in upkeep["asked"]] == ["circle", "about", "alike", "both"]
    assert all(asked["rows"] > 0 for asked in upkeep["asked"]), upkeep["asked"]
    merge = report["merge"]
    assert merge["changes"] == {"insert": 2, "update": 3, "delete": 0}
    assert list(merge["conflicts"].values()) == ["divergent_update"]
    assert (merge["inserted"], merge["updated"]) == (2, 3)
    assert upkeep["report"] == str(kept / "report.html")


def test_an_answer_that_differs_after_optimize_ends_the_demo() -> None:
    asked = [Question("traversal", "who?", "circle", {})]
    before, after = [Answer([{"people": n}], f"people\n{n}", 0.1, 0.1) for n in (3, 4)]
    assert compare(asked, [before], [before]) == (QuestionTimes("circle", 1, (0.1, 0.1), (0.1, 0.1)),)
    with pytest.raises(AssertionError, match="optimize changed the answer to circle"):
        compare(asked, [before], [after])


def test_without_a_folder_to_keep_the_report_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ExitStack() as rest:
        folder, page = _places(None, rest)
        Path(page).write_text("a report")
        assert Path(folder).is_dir()
    assert [str(p) for p in tmp_path.iterdir()] == [page], "the folder is gone"


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "people.csv").write_text("mine")
    with pytest.raises(UsageError, match="not from a demo"):
        prepare_folder(str(tmp_path))
    assert (tmp_path / "people.csv").read_text() == "mine"
    (tmp_path / MARK).write_text("")
    prepare_folder(str(tmp_path))
    assert (tmp_path / "thesis.tex").exists(), "only what a demo makes is replaced"
    assert not (tmp_path / "people.csv").exists()


@pytest.mark.parametrize(("flag", "value"), [("--scale", "0"), ("--scale", "-1"), ("--scale", "1e9"), ("--seed", "-1")])
def test_sizes_and_seeds_that_make_no_sense_are_wrong_usage(tmp_path: Path, flag: str, value: str) -> None:
    from omnigraph.cli.main import main

    assert main(["demo", flag, value, "--keep", str(tmp_path / "d")]) == 2
    assert not (tmp_path / "d").exists()
