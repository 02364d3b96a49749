"""Index tasks: compare the answers of an index with those of a full scan, on one published version.

    BTREE       equality, and ranges between stored values
    BITMAP      equality
    LABEL_LIST  lists that hold a label
    INVERTED    rows that hold a word, by the index's own tokenizer (fulltext_checks.py)
    IVF_*       the vectors of stored rows find themselves, distances are those of the stored vectors, and no
                answer is short (vectors.py)

A sample queries some stored values, by the index and by a scan, and compares the rows of some fragments, of a small
table of all. With `full` every value of every row is queried, one group of fragments per task. Values are queried in
groups, and ranges cover all that can be stored, so an entry under an old value shows as an extra row. Lance finds
uncovered rows without the index, so missing coverage is no wrong answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import StorageError
from omnigraph.maintenance.verify.findings import EXAMPLES_MAX, Finding
from omnigraph.maintenance.verify.fulltext_checks import check_words
from omnigraph.maintenance.verify.reading import read, reason
from omnigraph.maintenance.verify.rows import named_rows
from omnigraph.maintenance.verify.scope import Line, line_json, line_of, location_of
from omnigraph.maintenance.verify.tables import finding_json, grouped, line_finding, opened, unreadable
from omnigraph.maintenance.verify.vectors import check_vectors
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.filters import kind_of, literal
from omnigraph.storage.lance.tables import name_of
from omnigraph.storage.layout import Location

SAMPLE_VALUES = 32
SAMPLE_FRAGMENTS = 8
SAMPLE_ROWS = 1_000_000
"""Answers are compared within fragments of about this many rows: memory must not grow with the table."""
SAMPLE_PARTS = 4
PARTS = 16
BATCH_VALUES = 200
FULL_TURNS = 2
"""With `full` every value is queried in two groups with different neighbours."""
WHOLE_TABLE_KINDS = ("INVERTED", "IVF")
"""Kinds that answer over the whole table only: one task each, also with `full`."""

Filter = Callable[[Sequence[str]], str]


def index_tasks(
    location_body: Mapping[str, Any], lines: Sequence[Line], facts: Mapping[str, Any], *, full: bool, seed: int
) -> list[dict[str, Any]]:
    """One task per index; with `full`, one per index and group of fragments where the kind allows it."""
    tasks = []
    for line in lines:
        fact = facts.get(line.version_id, {})
        for index in fact.get("indices", ()):
            body = {"place": location_body, "line": line_json(line), "index": index, "full": full, "seed": seed}
            split = full and not str(index["kind"]).startswith(WHOLE_TABLE_KINDS)
            groups: list[list[int] | None] = list(grouped(fact["fragments"])) if split else [None]
            tasks += [{**body, "fragments": group} for group in groups]
    return tasks


def check_index(task: Mapping[str, Any]) -> dict[str, Any]:
    location, line, index = location_of(task["place"]), line_of(task["line"]), task["index"]
    asked = 0
    findings: list[Finding] = []

    def work() -> None:
        nonlocal asked
        asked = 0
        findings.clear()
        table = opened(location, line)
        for finding in _checked(location, line, table, task):
            if isinstance(finding, int):
                asked += finding
            else:
                findings.append(finding)

    try:
        try:
            read(location, f"asking {index['name']}", work)
        except StorageError as error:
            findings.append(_broken(location, line, task, reason(error)))
    except lance_api.TableMissing:
        findings.append(
            line_finding("version_missing", line, f"version {line.pin.version} of {line.pin.path} is not there")
        )
    return {"findings": [finding_json(f) for f in findings], "asked": asked, "rows_done": 0}


def _broken(location: Location, line: Line, task: Mapping[str, Any], why: str) -> Finding:
    """A query failed: the index is the cause only if its column can be read without it."""
    column, chosen = task["index"]["column"], task["fragments"]

    def scan() -> None:
        table = opened(location, line)
        fragments = None if chosen is None else [table.get_fragment(i) for i in chosen]
        for _ in table.scanner(columns=[column], fragments=fragments, use_scalar_index=False).to_batches():
            pass

    try:
        read(location, f"reading {column}", scan)
    except StorageError as error:
        return unreadable(line, f"{column}: {reason(error)}")
    return line_finding("index_unreadable", line, f"{_named(task['index'])} can't be queried", examples=[why])


def _named(index: Mapping[str, Any]) -> str:
    return f"the index {index['name']} ({index['kind']})"


def _checked(location: Location, line: Line, table: Any, task: Mapping[str, Any]) -> Iterator[Finding | int]:
    """Findings, and numbers of queries, in the order in which they occur."""
    kind = str(task["index"]["kind"])
    if kind.startswith("IVF"):
        yield from check_vectors(line, table, task, named=_named(task["index"]))
    elif kind == "INVERTED":
        yield from check_words(location, line, table, task, named=_named(task["index"]))
    else:
        yield from _check_values(location, line, table, task)


# ---- values ----------------------------------------------------------------------------------------------------------


def _check_values(location: Location, line: Line, table: Any, task: Mapping[str, Any]) -> Iterator[Finding | int]:
    index = task["index"]
    column, is_list = index["column"], index["kind"] == "LABEL_LIST"
    chance = random.Random(task["seed"])
    if task["full"]:
        fragments = [table.get_fragment(i) for i in task["fragments"]]
        values = _all_values(line, table, column, fragments, is_list)
        turns, parts = FULL_TURNS, max(PARTS, -(-len(values) // BATCH_VALUES))
    else:
        fragments = _some_fragments(table, chance)
        values = _some_values(line, table, column, fragments, is_list, chance)
        turns, parts = 1, SAMPLE_PARTS
    ask = _ask_labels(column) if is_list else _ask_values(column)
    filters = [ask(part) for _ in range(turns) for part in _parts(values, parts, chance)]
    if index["kind"] == "BTREE":
        filters += _ranges(column, values, parts)
    if not is_list:
        filters.append(f"{name_of(column)} IS NULL")
    yield turns * len(values) + len(filters)
    for where in filters:
        yield from _compare(location, line, table, index, where, fragments)


def _parts(values: Sequence[str], count: int, chance: random.Random) -> Iterator[list[str]]:
    """The values in this many random groups: an entry under an old value shows in a group without the new one."""
    mixed = chance.sample(list(values), len(values))
    size = max(1, -(-len(mixed) // count))
    for start in range(0, len(mixed), size):
        yield mixed[start : start + size]


def _ranges(column: str, values: Sequence[str], count: int) -> Iterator[str]:
    """Ranges that cover everything, cut at some of the sorted values: also entries under removed values."""
    name = name_of(column)
    step = max(1, len(values) // count)
    cuts = values[step::step]
    if not cuts:
        return
    yield f"{name} < {cuts[0]}"
    yield from (f"{name} >= {low} AND {name} < {high}" for low, high in pairwise(cuts))
    yield f"{name} >= {cuts[-1]}"


def _compare(
    location: Location, line: Line, table: Any, index: Mapping[str, Any], where: str, fragments: list[Any]
) -> Iterator[Finding]:
    """The rows that the index finds and those that a scan finds must be the same."""
    by_index, by_scan = (_row_ids(table, index["column"], where, fragments, use) for use in (True, False))
    if by_index.equals(by_scan):
        return
    too_many = by_index.filter(pc.invert(pc.is_in(by_index, by_scan)))
    missed = by_scan.filter(pc.invert(pc.is_in(by_scan, by_index)))
    for code, rows, text in (
        ("index_stale", too_many, "finds rows by values that they do not have"),
        ("index_wrong_answer", missed, "does not find rows that a full scan finds"),
    ):
        if len(rows):
            first = rows[:EXAMPLES_MAX].to_pylist()
            examples = named_rows(location, line, first, ("id", index["column"])) or [f"row {i}" for i in first]
            yield line_finding(code, line, f"{_named(index)} {text}", count=len(rows), examples=examples)


def _row_ids(table: Any, column: str, where: str, fragments: list[Any], use_index: bool) -> pa.Array:
    # The column is not read if the index answers: its answer is used as it is, as in a query.
    scanner = table.scanner(columns=[], filter=where, fragments=fragments, with_row_id=True, use_scalar_index=use_index)
    row_ids = scanner.to_table().column("_rowid").combine_chunks()
    return row_ids.take(pc.array_sort_indices(row_ids))


def _ask_values(column: str) -> Filter:
    return lambda values: f"{name_of(column)} IN ({', '.join(values)})"


def _ask_labels(column: str) -> Filter:
    return lambda values: f"array_has_any({name_of(column)}, [{', '.join(values)}])"


def _literals(line: Line, column: str, values: pa.Array, is_list: bool) -> list[str]:
    """The different values, sorted, as far as they have a literal."""
    p = line.type.by_name.get(column)
    kind = str(p.type.item) if is_list and p is not None else kind_of(line.type, column)
    different = pc.unique(values).drop_null()
    literals = (literal(kind, value) for value in different.take(pc.array_sort_indices(different)).to_pylist())
    return [text for text in literals if text is not None]


def _flat(batch: Any, column: str, is_list: bool) -> pa.Array:
    values = pa.table(batch).column(column).combine_chunks()
    return pc.list_flatten(values) if is_list else values


def _some_fragments(table: Any, chance: random.Random) -> list[Any]:
    """All fragments of a table of up to SAMPLE_ROWS rows, of a larger one as many as have that many."""
    fragments = table.get_fragments()
    chosen: list[Any] = []
    rows = 0
    for fragment in chance.sample(fragments, len(fragments)):
        if chosen and rows + fragment.metadata.physical_rows > SAMPLE_ROWS:
            break
        chosen.append(fragment)
        rows += fragment.metadata.physical_rows
    return chosen


def _some_values(
    line: Line, table: Any, column: str, fragments: list[Any], is_list: bool, chance: random.Random
) -> list[str]:
    """Values of rows spread over these fragments."""
    parts = []
    for fragment in chance.sample(fragments, min(len(fragments), SAMPLE_FRAGMENTS)):
        offset = chance.randrange(max(1, fragment.count_rows() - SAMPLE_VALUES + 1))
        scanner = table.scanner(columns=[column], fragments=[fragment], offset=offset, limit=SAMPLE_VALUES)
        parts.append(_flat(scanner.to_table(), column, is_list))
    if not parts:
        return []
    values = _literals(line, column, pa.concat_arrays(parts), is_list)
    kept = set(chance.sample(values, min(len(values), SAMPLE_VALUES)))
    return [value for value in values if value in kept]


def _all_values(line: Line, table: Any, column: str, fragments: Sequence[Any], is_list: bool) -> list[str]:
    scanner = table.scanner(columns=[column], fragments=fragments)
    parts = [pc.unique(_flat(batch, column, is_list)) for batch in scanner.to_batches()]
    return _literals(line, column, pa.concat_arrays(parts), is_list) if parts else []
