"""The page about pipeline files and the example in the repository: what they show works."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import omnigraph as og
from omnigraph.pipeline.file.reader import EMBED_KEYS, KEYS, parse_file
from omnigraph.pipeline.file.run import plan_pipeline, run_pipeline

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pipeline-file.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_every_file_on_the_page_is_sound() -> None:
    assert len(BLOCKS) == 5
    for block in BLOCKS:
        parse_file(block, file="/data/p.yaml", variables={"ROOT": "s3://b", "DAY": "1"})


def test_the_page_names_every_key() -> None:
    for key in (*KEYS, *EMBED_KEYS):
        assert f"`{key}`" in PAGE or f"{key}:" in PAGE, f"{key} is not documented"


def test_the_example_runs_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    file = tmp_path / "examples" / "pipeline" / "people.yaml"
    assert file.read_text() == BLOCKS[0]
    assert plan_pipeline(file).fits
    result = run_pipeline(file)
    assert result.load is not None
    assert result.load.inserted == {"node:Person": 3, "node:Company": 2, "edge:WorksFor": 2, "edge:Knows": 2}
    assert result.load.rejected_by_rule == {"range": 1, "endpoint": 1}
    assert (file.parent / "rejects" / "people.rejected.jsonl").exists()
    again = run_pipeline(file)
    assert again.load is not None
    assert again.load.commit is None
    assert og.open(file.parent / "graph").snapshot().count("Person") == 3
