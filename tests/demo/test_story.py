"""The demo as people run it: every claim it makes is checked by itself, small here; and it minds its folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.demo.story import MARK, prepare_folder
from omnigraph.errors import UsageError


def demo(*args: str, home: Path) -> subprocess.CompletedProcess[str]:
    """`omnigraph demo`, with an empty home and from a folder that is not the repository."""
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "TMPDIR") if name in os.environ}
    command = [sys.executable, "-m", "omnigraph.cli.main", "demo", "--scale", "0.005", "--engine", "local", *args]
    environment = {**kept, "HOME": str(home), "OMNIGRAPH_FSYNC": "off"}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=home, env=environment)


def test_the_demo_tells_its_story_keeps_its_folder_and_can_be_run_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    done = demo("--keep", "kept", home=home)
    assert done.returncode == 0, done.stdout + done.stderr
    for told in (
        "broken on purpose",
        "All of it was found",
        "no commit is made",
        "vectors in",
        "settled it",
        "Done in",
    ):
        assert told in done.stdout
    assert "→ engine local: as asked for" in done.stderr
    assert "reading: " in done.stderr
    kept = home / "kept"
    assert {"pipeline.yaml", "social.pg", "graph", "rejects.jsonl", "people.csv"} <= {p.name for p in kept.iterdir()}
    again = demo("--keep", "kept", "--json", "--quiet", "--seed", "8", home=home)
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stderr == ""
    report = json.loads(again.stdout)
    assert report["seed"] == 8
    assert report["vectors"] == report["rows"]["node:Post"]
    assert sum(report["rejected_by_rule"].values()) == len((kept / "rejects.jsonl").read_text().splitlines())
    assert report["healed"] == "rolled forward"


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "people.csv").write_text("mine")
    with pytest.raises(UsageError, match="no demo made it"):
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
