"""Documents of the repository: links lead somewhere, indices are complete, hooks and CI run the same tools."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.support.layers import LAYERS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_of_a_page_leads_to_a_file(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [target for target in _LINK.findall(text) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("folder", ["adr", "runs"])
def test_an_index_lists_every_page_of_its_folder(folder: str) -> None:
    pages = {path.name for path in (ROOT / "docs" / folder).glob("*.md")} - {"README.md"}
    index = (ROOT / "docs" / folder / "README.md").read_text(encoding="utf-8")
    assert pages <= set(_LINK.findall(index))


def test_every_decision_has_the_four_headings() -> None:
    headings = ["## Context", "## Decision", "## What was measured", "## Consequences"]
    for page in (ROOT / "docs" / "adr").glob("[0-9]*.md"):
        assert re.findall(r"^## .*$", page.read_text(encoding="utf-8"), re.MULTILINE) == headings, page.name


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    shown = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    lines = [line for line in shown.splitlines() if not line.startswith("make")]
    assert {line.split()[0] for line in lines} == set(phony[1].split())


def test_hooks_run_the_tools_of_make_lint_and_types() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repo["repo"] for repo in config["repos"]] == ["local"], "nothing is fetched"
    entries = [hook["entry"].removesuffix(" --force-exclude") for hook in config["repos"][0]["hooks"]]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipes = re.findall(r"^(?:lint|types):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    commands = [line.strip().replace("$(BIN)", ".venv/bin") for line in "".join(recipes).splitlines()]
    assert [command.removesuffix(" .") for command in commands] == entries


SVG = "{http://www.w3.org/2000/svg}"


def packages_by_row(picture: str) -> list[set[str]]:
    """Names of packages by their height in a picture, from the lowest row to the highest."""
    rows: dict[float, set[str]] = {}
    for text in ElementTree.fromstring(picture).iter(f"{SVG}text"):
        if text.get("class") == "package":
            rows.setdefault(float(text.attrib["y"]), set()).add(text.text or "")
    return [rows[y] for y in sorted(rows, reverse=True)]


def test_the_picture_of_the_layers_shows_exactly_the_pinned_layers() -> None:
    picture = (ROOT / "docs" / "layers.svg").read_text(encoding="utf-8")
    assert packages_by_row(picture) == list(LAYERS)
    assert packages_by_row(picture.replace(">errors<", ">mistakes<")) != list(LAYERS)


def test_the_picture_of_the_commit_protocol_names_its_steps() -> None:
    picture = ElementTree.fromstring((ROOT / "docs" / "commit.svg").read_text(encoding="utf-8"))
    names = [text.text for text in picture.iter(f"{SVG}text") if text.get("font-weight") == "bold"]
    steps = ["prepare", "lock", "check", "plan", "effect", "publish", "release"]
    assert names == [*steps, "claim", "compare with the plan", "roll forward", "roll back"]
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert [row for row in re.findall(r"^\| (\w+) \|", page, re.MULTILINE) if row in steps] == steps


@pytest.mark.parametrize("name", ["layers.svg", "commit.svg"])
def test_a_picture_has_a_title_and_colours_for_light_and_dark(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text
    assert ElementTree.fromstring(text).find(f"{SVG}title") is not None
