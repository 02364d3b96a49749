"""The data of the demo: the same bytes for a seed, and dirt in the numbers that are written down."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import orjson
import pytest
from pyarrow import csv, parquet

from omnigraph.demo.generate import World, generate

SCALE = 0.02


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return generate(str(tmp_path_factory.mktemp("world")), scale=SCALE, seed=3)


def digest(folder: str) -> dict[str, str]:
    files = sorted(p for p in Path(folder).rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_the_same_seed_makes_the_same_bytes_and_another_one_others(world: World, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    again = generate(str(tmp_path / "a"), scale=SCALE, seed=3)
    assert (again.rows, again.rejects) == (world.rows, world.rejects)
    assert digest(again.folder) == digest(world.folder)
    other = digest(generate(str(tmp_path / "b"), scale=SCALE, seed=4).folder)
    assert not set(other.values()) & set(digest(world.folder).values())


def test_every_file_holds_the_good_rows_and_the_planted_ones(world: World) -> None:
    people = csv.read_csv(f"{world.folder}/people.csv")
    dirt = world.rejects["key"]
    assert people.num_rows == world.rows["node:Person"] + 5 * dirt
    handles = Counter(people.column("handle").to_pylist())
    assert sum(n - 1 for n in handles.values()) == dirt
    follows = parquet.read_table(f"{world.folder}/follows")
    strangers = [h for h in follows.column("followee").to_pylist() if h not in handles]
    assert len(strangers) == dirt
    assert follows.num_rows == world.rows["edge:Follows"] + dirt
    lines = Path(f"{world.folder}/posts.jsonl").read_bytes().splitlines()
    torn = 0
    for line in lines:
        try:
            orjson.loads(line)
        except orjson.JSONDecodeError:
            torn += 1
    assert torn == world.rejects["record"]


def test_degrees_follow_a_power_law(world: World) -> None:
    followees = Counter(parquet.read_table(f"{world.folder}/follows").column("followee").to_pylist())
    ranked = sorted(followees.values(), reverse=True)
    top = sum(ranked[: len(ranked) // 100])
    assert top > 0.1 * sum(ranked), "one in a hundred has more than a tenth of all followers"
    assert ranked[0] > 10 * ranked[len(ranked) // 2]


def test_texts_of_one_topic_share_their_words_and_no_text_needs_escaping(world: World) -> None:
    posts = []
    for line in Path(f"{world.folder}/posts.jsonl").read_bytes().splitlines():
        if line.startswith(b'{"type":"Post"') and line.endswith(b"}}"):
            posts.append(orjson.loads(line)["data"].get("text", ""))
    chess = [text for text in posts if "checkmate" in text]
    assert chess
    assert not any("telescope" in text for text in chess)
    assert len(set(posts)) > 0.95 * len(posts)


def test_a_million_edges_at_scale_one() -> None:
    from omnigraph.demo import generate as module

    assert 1_000_000 < module.FOLLOWS + module.LIKES + module.POSTS * 2.8 + module.PEOPLE * module.EMPLOYED < 1_200_000
