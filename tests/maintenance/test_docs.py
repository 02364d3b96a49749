"""The page about maintenance: what it shows is what the commands say, and its figures are those of the code.

The commands are run by `tests.pages`. Times, ids and sizes may differ.
"""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.index import build, segments
from omnigraph.index.declared import kinds_of
from omnigraph.language.schema.syntax.parse import parse_schema
from omnigraph.maintenance.maintain.policy import SECTIONS, parse_maintain_policy
from omnigraph.maintenance.maintain.run import MaintainResult, Step
from omnigraph.maintenance.optimize.bins import FULL_BYTES
from omnigraph.storage.lance.edits import ROWS_PER_FRAGMENT
from omnigraph.storage.lance.fragment_stats import DELETED_SHARE
from tests.cli.conftest import Cli, cli  # noqa: F401 - a fixture
from tests.maintenance import strangers
from tests.pages import DOCS, run_page

PATH = DOCS / "maintenance.md"
PAGE = PATH.read_text()
SCHEMA = """
node Person { name: String @key  age: I32? @index  bio: String? @index }
node City { name: String @key }
edge Knows: Person -> Person
"""


def people(path: Path) -> None:
    """A graph after a day of small writes."""
    shutil.rmtree(path, ignore_errors=True)
    graph = og.init(path, SCHEMA)
    graph.insert({"City": [{"name": name} for name in ("Bonn", "Ulm")]})
    for i in range(24):
        rows = [{"name": f"p{i}-{j}", "age": j, "bio": f"text {i} by {j}"} for j in range(5)]
        graph.insert({"Person": rows, "Knows": [{"from": f"p{i}-0", "to": f"p{i}-1"}]})
    graph.insert({"Person": [{"name": "Ada"}, {"name": "Bob"}]})
    graph.delete({"Person": [f"p{i}-4" for i in range(24)]})


def a_stranger(path: Path) -> None:
    graph = og.open(path)
    strangers.opened(graph, "Person").delete("id IN ('Ada', 'Bob')")
    strangers.index(graph, "City", "name")


def plain(text: str) -> list[str]:
    """Lines without what differs from run to run."""
    text = re.sub(r"\b01[0-9A-HJKMNP-TV-Z…]{1,24}(?![0-9A-Za-z])", "ID", text)
    text = re.sub(r"\b[\d,]+(\.\d+)? (B|KiB|MiB)\b", "SIZE", text)
    text = re.sub(r"\b\d+\.\d( s\b|(?=\n|$))", "TIME", text)
    text = re.sub(r"\b[\d,]+ (files|questions)", r"N \1", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:+]+", "THEN", text)
    return [re.sub(r" {2,}", "  ", line.strip()) for line in text.strip().splitlines() if line.strip()]


def test_every_output_on_the_page_is_what_the_command_says(
    tmp_path: Path,
    cli: Cli,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(policy_block())
    at = tmp_path / "people"
    first = {"people": partial(people, at), "a stranger": partial(a_stranger, at)}
    assert PAGE.count("<!-- first:") == 5
    assert run_page(PATH, tmp_path, cli, plain, first=first) == 11


def policy_block() -> str:
    found = re.search(r"<!-- policy -->\n```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_policy_on_the_page_has_every_section_and_key() -> None:
    policy = parse_maintain_policy(policy_block())
    assert policy.retention is not None
    for section, keys in SECTIONS.items():
        assert f"\n{section}:" in f"\n{policy_block()}"
        for key in keys:
            assert f"{key}:" in policy_block(), f"{section}.{key}"


def test_the_page_names_every_field_of_the_report() -> None:
    section = PAGE.split("\n## maintain\n")[1].split("\n## ")[0]
    for name in (*MaintainResult.__dataclass_fields__, *Step.__dataclass_fields__):
        word = "step" if name == "name" else name
        assert f"`{word}`" in section, word
    for outcome in ("done", "nothing", "previewed", "problems", "failed"):
        assert f"`{outcome}`" in section


@pytest.mark.parametrize(
    ("declaration", "shown"),
    [
        ("enum(a, b)", "BITMAP"),
        ("Bool", "BITMAP"),
        ("I64", "BTREE"),
        ("F32", "BTREE"),
        ("Date", "BTREE"),
        ("DateTime", "BTREE"),
        ("String", "BTREE INVERTED"),
        ("Vector(4)", "IVF"),
        ("[String]", "LABEL_LIST"),
    ],
)
def test_the_table_of_indices_is_what_is_built(declaration: str, shown: str) -> None:
    schema = parse_schema(f"node T {{ k: String @key  p: {declaration}? }}", file="t.pg")
    kinds = kinds_of(schema.node["T"].by_name["p"].type)
    assert " ".join(kinds) == shown
    section = PAGE.split("### Which index a property gets")[1].split("\n##")[0]
    word = {"enum(a, b)": "enum", "I64": "number", "F32": "number", "Vector(4)": "Vector", "[String]": "list"}
    row = next(
        line for line in section.splitlines() if line.startswith("|") and word.get(declaration, declaration) in line
    )
    for kind in kinds:
        assert kind in row, row


def test_every_condition_on_the_page_exists() -> None:
    section = PAGE.split("\n## When something is refused\n")[1]
    named = set(re.findall(r"^\| `([a-z_]+)` \|", section, re.MULTILINE)) - {"refused"}
    known = re.findall(r"^\| `([a-z_]+)` \|", (DOCS / "errors.md").read_text(), re.MULTILINE)
    assert len(named) >= 10
    assert named <= set(known)


def test_the_figures_on_the_page_are_those_of_the_code() -> None:
    section = PAGE.split("\n## optimize\n")[1].split("\n## ")[0]
    for number in (
        f"{ROWS_PER_FRAGMENT:,}",
        f"{FULL_BYTES >> 20} MiB",
        f"{100 * DELETED_SHARE:.0f} %",
        f"{build.VECTORS_MIN}",
        f"{build.FLAT_MAX:,}",
        f"{build.PARTITION_ROWS:,}",
        f"{build.RETRAIN_GROWTH} times",
        f"{segments.SEGMENT_ROWS:,}",
        f"{segments.ABSORB_ROWS:,}",
        f"{segments.SEGMENTS_MAX} segments",
    ):
        assert number in section, number
