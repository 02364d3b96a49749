"""The files of a social and content graph, from a seed: the same seed and scale give the same bytes.

1. people, companies   CSV
2. posts, tags         NDJSON records, with authors and tags, in any order
3. follows, likes      Parquet, degrees by a power law; works-at as CSV
4. invalid rows        that break a rule, in counted numbers: `World.rejects` is what a load with
                       quarantine must report, `World.rows` what the graph must hold afterwards

Everything is drawn and joined a column at a time. Invalid rows never displace valid ones: a repeated key may come
before the first, any other comes after the row that it collides with.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from omnigraph.demo import words

PEOPLE, COMPANIES, POSTS = 60_000, 1_200, 50_000
FOLLOWS, LIKES = 620_000, 250_000
INVALID_ROWS = 120
"""Invalid rows per rule, at scale 1."""
FOLLOW_PARTS = 4
EMPLOYED = 0.75

Columns = dict[str, pa.Array]


@dataclass(frozen=True)
class World:
    """What was written: good rows by type, planted rows by the rule they break."""

    folder: str
    rows: Mapping[str, int]
    rejects: Mapping[str, int]
    size_bytes: int

    @property
    def edges(self) -> int:
        return sum(count for key, count in self.rows.items() if key.startswith("edge:"))


@dataclass
class _Ledger:
    """Counts while the files are made."""

    rows: dict[str, int] = field(default_factory=dict)
    rejects: Counter[str] = field(default_factory=Counter)


def generate(folder: str, *, scale: float = 1.0, seed: int = 7) -> World:
    """Write the files into a folder that exists."""
    ledger = _Ledger()
    streams = [np.random.Generator(np.random.PCG64(s)) for s in np.random.SeedSequence(seed).spawn(6)]
    sizes = {
        name: max(minimum, round(full_size * scale))
        for name, full_size, minimum in (("people", PEOPLE, 400), ("companies", COMPANIES, 20), ("posts", POSTS, 200))
    }
    dirt = max(3, round(INVALID_ROWS * scale))
    handles = _people(folder, streams[0], sizes["people"], dirt, ledger)
    names, shadows = _companies(folder, streams[1], sizes["companies"], dirt, ledger)
    _works_at(folder, streams[2], handles, names, shadows, dirt, ledger)
    slugs, broken = _posts(folder, streams[3], sizes["posts"], handles, dirt, ledger)
    _follows(folder, streams[4], handles, max(2_000, round(FOLLOWS * scale)), dirt, ledger)
    _likes(folder, streams[5], handles, slugs, broken, max(1_000, round(LIKES * scale)), dirt, ledger)
    size = sum(os.path.getsize(os.path.join(path, n)) for path, _, files in os.walk(folder) for n in files)
    return World(folder, dict(ledger.rows), dict(sorted(ledger.rejects.items())), size)


# ---- tables ----------------------------------------------------------------------------------------------------------


def _people(folder: str, rng: np.random.Generator, count: int, dirt: int, ledger: _Ledger) -> pa.Array:
    first, last = _some(rng, words.FIRST, count), _some(rng, words.LAST, count)
    handles = _joined(pc.utf8_lower(first), ".", pc.utf8_lower(last), _numbers(count))
    ages = pa.array(np.clip(rng.normal(38, 14, count), 14, 95).astype(np.int32)).cast(pa.string())
    ages = pc.if_else(pa.array(rng.random(count) < 0.1), pa.scalar(None, pa.string()), ages)
    good = {
        "handle": handles,
        "name": _joined(first, " ", last),
        "email": _joined(handles, "@example.org"),
        "age": ages,
        "city": _some(rng, words.CITIES, count, exponent=1.5),
        "joined": _days(rng, count, "2015-01-01", 3_900),
    }
    victims = rng.choice(count, 2 * dirt, replace=False)
    planted = [
        _altered(good, rng, dirt, "zz.range.", age="250"),
        _altered(good, rng, dirt, "zz.type.", age="forty-two"),
        _altered(good, rng, dirt, "zz.null.", name=None),
    ]
    repeated = _altered(good, rng, dirt, "zz.key.", name="Somebody Else")
    planted.append({**repeated, "handle": handles.take(pa.array(victims[:dirt]))})
    taken = _altered(good, rng, dirt, "zz.unique.")
    taken["email"] = good["email"].take(pa.array(victims[dirt:]))
    mixed = _shuffled(rng, _stacked([good, *planted]))
    _write_csv(folder, "people.csv", _stacked([mixed, taken]))
    ledger.rows["node:Person"] = count
    ledger.rejects.update(dict.fromkeys(("range", "type", "null", "key", "unique"), dirt))
    return handles


def _companies(
    folder: str, rng: np.random.Generator, count: int, dirt: int, ledger: _Ledger
) -> tuple[pa.Array, pa.Array]:
    names = _joined(_some(rng, words.COMPANY_FRONT, count), _some(rng, words.COMPANY_BACK, count), " ", _numbers(count))
    good = {
        "company": names,
        "sector": _some(rng, words.INDUSTRIES, count),
        "founded": pa.array(rng.integers(1950, 2023, count)).cast(pa.string()),
    }
    shadows = _joined("Shadow Holding ", _numbers(dirt))
    bad = {"company": shadows, "sector": _constant("alchemy", dirt), "founded": _constant("1999", dirt)}
    _write_csv(folder, "companies.csv", _shuffled(rng, _stacked([good, bad])))
    ledger.rows["node:Company"] = count
    ledger.rejects["enum"] += dirt
    return names, shadows


def _works_at(
    folder: str,
    rng: np.random.Generator,
    handles: pa.Array,
    names: pa.Array,
    shadows: pa.Array,
    dirt: int,
    ledger: _Ledger,
) -> None:
    order = rng.permutation(len(handles))
    employed, others = np.split(order, [int(len(handles) * EMPLOYED)])
    count = len(employed)
    people = handles.take(pa.array(np.concatenate([employed, employed[:dirt], others[:dirt]])))
    places = names.take(pa.array(_popular(rng, len(names), count + dirt, 2.0)))
    total = count + 2 * dirt
    rows = {
        "id": _joined("w", _numbers(total)),
        "person": people,
        "company": pa.concat_arrays([places, shadows]),
        "role": _some(rng, words.ROLES, total),
        "since": _days(rng, total, "2005-01-01", 7_500),
    }
    _write_csv(folder, "works_at.csv", _shuffled(rng, rows))
    ledger.rows["edge:WorksAt"] = count
    # A second job of the same person; a job at a company that is itself rejected.
    ledger.rejects.update({"cardinality": dirt, "endpoint": dirt})


def _follows(
    folder: str, rng: np.random.Generator, handles: pa.Array, count_max: int, dirt: int, ledger: _Ledger
) -> None:
    people = len(handles)
    follower, followee = _pairs(rng, people, people, count_max, (1.6, 2.6), loops=False)
    count = len(follower)
    good = {
        "follower": handles.take(pa.array(follower)),
        "followee": handles.take(pa.array(followee)),
        "since": _days(rng, count, "2016-01-01", 3_600).cast(pa.date32()),
    }
    bad = {
        "follower": handles.take(pa.array(rng.integers(0, people, dirt))),
        "followee": _joined("nobody.", _numbers(dirt)),
        "since": pa.nulls(dirt, pa.date32()),
    }
    rows = {"id": _joined("f", _numbers(count + dirt)), **_shuffled(rng, _stacked([good, bad]))}
    os.makedirs(os.path.join(folder, "follows"), exist_ok=True)
    table = pa.table(rows)
    part = -(-table.num_rows // FOLLOW_PARTS)
    for i in range(FOLLOW_PARTS):
        parquet.write_table(table.slice(i * part, part), os.path.join(folder, "follows", f"part-{i}.parquet"))
    ledger.rows["edge:Follows"] = count
    ledger.rejects["endpoint"] += dirt


def _likes(
    folder: str,
    rng: np.random.Generator,
    handles: pa.Array,
    slugs: pa.Array,
    broken: pa.Array,
    count_max: int,
    dirt: int,
    ledger: _Ledger,
) -> None:
    person, post = _pairs(rng, len(handles), len(slugs), count_max, (1.8, 2.2), loops=True)
    count = len(person)
    total = count + 2 * dirt
    at = np.datetime64("2025-01-01T00:00:00", "ms") + rng.integers(0, 300 * 86_400_000, total)
    unknown_people = _joined("nobody.", _numbers(dirt))
    some = handles.take(pa.array(rng.integers(0, len(handles), dirt)))
    rows = {
        "person": pa.concat_arrays([handles.take(pa.array(person)), unknown_people, some]),
        "post": pa.concat_arrays([slugs.take(pa.array(post)), slugs[:dirt], broken]),
        "at": pa.array(at),
    }
    rows = {"id": _joined("l", _numbers(total)), **_shuffled(rng, rows)}
    parquet.write_table(pa.table(rows), os.path.join(folder, "likes.parquet"))
    ledger.rows["edge:Likes"] = count
    # By people who do not exist, and of posts that are themselves rejected.
    ledger.rejects["endpoint"] += 2 * dirt


# ---- posts -----------------------------------------------------------------------------------------------------------


def _posts(
    folder: str, rng: np.random.Generator, count: int, handles: pa.Array, dirt: int, ledger: _Ledger
) -> tuple[pa.Array, pa.Array]:
    """The slugs of good posts, and those of posts that are rejected and that something points to."""
    topics = rng.integers(0, len(words.TOPICS), count + 3 * dirt)
    slugs = _joined("post-", _numbers(count + 3 * dirt))
    texts = _texts(rng, topics)
    times = np.datetime64("2025-01-01T00:00:00", "s") + rng.integers(0, 300 * 86_400, len(topics))
    moments = _joined(pa.array(np.datetime_as_string(times, unit="s")), "Z")
    kinds = [slice(0, count), *(slice(count + i * dirt, count + (i + 1) * dirt) for i in range(3))]
    good, unknown, typed, absent = (_post_lines(slugs[k], texts[k], moments[k]) for k in kinds)
    unknown = pc.replace_substring(unknown, '"data":{', '"data":{"mood":"great",')
    typed = pc.replace_substring_regex(typed, r'"posted_at":"[^"]*"', '"posted_at":"yesterday"')
    absent = pc.replace_substring_regex(absent, r'"text":"[^"]*",', "")
    truncated = pc.utf8_slice_codeunits(good[:dirt], 0, 60)

    authors = handles.take(pa.array(_popular(rng, len(handles), count, 2.0)))
    posted = _edge_lines("Posted", _joined("p", _numbers(count)), authors, slugs[:count])
    tagged = _tagged(rng, topics[:count], slugs[:count])
    tags = [*words.TOPICS, *words.MORE_TAGS]
    tag_lines = _joined('{"type":"Tag","data":{"name":"', pa.array(tags), '"}}')
    parts = [good, unknown, typed, absent, truncated, posted, tagged, tag_lines]
    lines = pa.concat_arrays([_flat(part) for part in parts])
    lines = lines.take(pa.array(rng.permutation(len(lines))))
    with open(os.path.join(folder, "posts.jsonl"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines.to_pylist()) + "\n")
    ledger.rows |= {"node:Post": count, "node:Tag": len(tags), "edge:Posted": count, "edge:Tagged": len(tagged)}
    ledger.rejects.update({"unknown_field": dirt, "type": dirt, "null": dirt, "record": dirt})
    return slugs[:count], slugs[kinds[1]]


def _texts(rng: np.random.Generator, topics: np.ndarray) -> pa.Array:
    """An opener and two to four sentences of one topic, out of a pool of sentences per topic."""
    pool_size = 400
    pools = [_sentences(rng, *(part.split() for part in topic), count=pool_size) for topic in words.TOPICS.values()]
    pool = pa.array([sentence for sentences in pools for sentence in sentences])
    count = len(topics)
    picked = [pool.take(pa.array(topics * pool_size + rng.integers(0, pool_size, count))) for _ in range(4)]
    empty = pa.scalar(None, pa.string())
    third = pc.if_else(pa.array(rng.random(count) < 0.7), picked[2], empty)
    fourth = pc.if_else(pa.array(rng.random(count) < 0.3), picked[3], empty)
    opener = _some(rng, words.OPENERS, count)
    return _flat(pc.binary_join_element_wise(opener, picked[0], picked[1], third, fourth, " ", null_handling="skip"))


def _sentences(
    rng: np.random.Generator, things: Sequence[str], verbs: Sequence[str], adjectives: Sequence[str], *, count: int
) -> list[str]:
    sentences = []
    for _ in range(count):
        thing, other = rng.choice(len(things), 2, replace=False)
        shape, verb, adjective = (
            choices[int(rng.integers(len(choices)))] for choices in (words.SENTENCES, verbs, adjectives)
        )
        sentences.append(shape.format(thing=things[thing], other=things[other], verb=verb, adjective=adjective))
    return sentences


def _post_lines(slugs: pa.Array, texts: pa.Array, moments: pa.Array) -> pa.Array:
    # The vocabulary holds nothing that JSON would escape.
    return _joined('{"type":"Post","data":{"slug":"', slugs, '","text":"', texts, '","posted_at":"', moments, '"}}')


def _tagged(rng: np.random.Generator, topics: np.ndarray, slugs: pa.Array) -> pa.Array:
    """Every post has the tag of its topic, many have one more."""
    names = pa.array([*words.TOPICS, *words.MORE_TAGS])
    has_more = np.flatnonzero(rng.random(len(topics)) < 0.8)
    more = len(words.TOPICS) + rng.integers(0, len(words.MORE_TAGS), len(has_more))
    posts = slugs.take(pa.array(np.concatenate([np.arange(len(topics)), has_more])))
    tags = names.take(pa.array(np.concatenate([topics, more])))
    return _edge_lines("Tagged", _joined("t", _numbers(len(posts))), posts, tags)


def _edge_lines(name: str, ids: pa.Array, sources: pa.Array, targets: pa.Array) -> pa.Array:
    return _joined(f'{{"edge":"{name}","from":"', sources, '","to":"', targets, '","data":{"id":"', ids, '"}}')


# ---- columns ---------------------------------------------------------------------------------------------------------


def _flat(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _joined(*parts: Any) -> pa.Array:
    return _flat(pc.binary_join_element_wise(*parts, ""))


def _numbers(count: int) -> pa.Array:
    return pa.array(np.arange(1, count + 1)).cast(pa.string())


def _constant(text: str | None, count: int) -> pa.Array:
    return pa.array([text] * count, pa.string())


def _popular(rng: np.random.Generator, among: int, count: int, exponent: float) -> np.ndarray:
    """Positions below `among`, few of them very often: a power law."""
    return (among * rng.random(count) ** exponent).astype(np.int64)


def _some(rng: np.random.Generator, choices: Sequence[str], count: int, *, exponent: float = 1.0) -> pa.Array:
    return pa.array(list(choices)).take(pa.array(_popular(rng, len(choices), count, exponent)))


def _days(rng: np.random.Generator, count: int, since: str, span: int) -> pa.Array:
    days = np.datetime64(since, "D") + rng.integers(0, span, count)
    return pa.array(days).cast(pa.string())


def _pairs(
    rng: np.random.Generator, left: int, right: int, count_max: int, exponents: tuple[float, float], *, loops: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Distinct pairs, `count_max` unless there are fewer; popularity is not by position."""
    drawn = int(count_max * 1.6)
    a = rng.permutation(left)[_popular(rng, left, drawn, exponents[0])]
    b = rng.permutation(right)[_popular(rng, right, drawn, exponents[1])]
    codes = a * right + b
    if not loops:
        codes = codes[a != b]
    _, firsts = np.unique(codes, return_index=True)
    kept = codes[np.sort(firsts)[:count_max]]
    return kept // right, kept % right


def _altered(good: Columns, rng: np.random.Generator, count: int, handle: str, **values: str | None) -> Columns:
    """Copies of good people under handles of their own, with some values replaced."""
    taken = pa.array(rng.integers(0, len(good["handle"]), count))
    rows = {name: column.take(taken) for name, column in good.items()}
    rows["handle"] = _joined(handle, _numbers(count))
    rows["email"] = _joined(rows["handle"], "@example.org")
    return {**rows, **{name: _constant(value, count) for name, value in values.items()}}


def _stacked(parts: Sequence[Mapping[str, pa.Array]]) -> Columns:
    return {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}


def _shuffled(rng: np.random.Generator, rows: Mapping[str, pa.Array]) -> Columns:
    order = pa.array(rng.permutation(len(next(iter(rows.values())))))
    return {name: column.take(order) for name, column in rows.items()}


def _write_csv(folder: str, name: str, rows: Mapping[str, pa.Array]) -> None:
    options = csv.WriteOptions(quoting_style="needed")
    csv.write_csv(pa.table(dict(rows)), os.path.join(folder, name), options)
