"""Index tasks: what an index answers against what a full scan answers, on one published version.

    BTREE       equality, and ranges between values that are there
    BITMAP      equality
    LABEL_LIST  lists that hold a label
    INVERTED    rows that hold a word, as the index's own tokenizer sees it (words.py)
    IVF_*       the vectors of rows that are there find themselves, distances are those of the stored vectors, and no
                answer is short (vectors.py)

A sample asks about some values that the table holds, the whole table by the index and by a scan. With `full` every
value of every row is asked for, one group of fragments per task. Rows that an index does not cover are found by Lance
without it, so a lag is no wrong answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import StorageError
from omnigraph.maintenance.verify.findings import EXAMPLES_MOST, Finding
from omnigraph.maintenance.verify.rows import named_rows
from omnigraph.maintenance.verify.scope import Line, line_json, line_of, place_of
from omnigraph.maintenance.verify.tables import finding_json, grouped, opened, reason, tell
from omnigraph.maintenance.verify.vectors import check_vectors
from omnigraph.maintenance.verify.words import check_words
from omnigraph.storage import lancefs
from omnigraph.storage.filters import kind_of, literal
from omnigraph.storage.layout import Location
from omnigraph.storage.table import name_of

SAMPLE_VALUES = 32
SAMPLE_RANGES = 2
BATCH_VALUES = 200
TOGETHER = ("INVERTED", "IVF")
"""Kinds that answer over the whole table only: one task each, also with `full`."""

Filter = Callable[[Sequence[str]], str]


def index_tasks(
    place: Mapping[str, Any], lines: Sequence[Line], facts: Mapping[str, Any], *, full: bool, seed: int
) -> list[dict[str, Any]]:
    """One task per index; with `full`, one per index and group of fragments where the kind allows it."""
    tasks = []
    for line in lines:
        fact = facts.get(line.at, {})
        for index in fact.get("indices", ()):
            body = {"place": place, "line": line_json(line), "index": index, "full": full, "seed": seed}
            split = full and not str(index["kind"]).startswith(TOGETHER)
            groups: list[list[int] | None] = list(grouped(fact["fragments"])) if split else [None]
            tasks += [{**body, "fragments": group} for group in groups]
    return tasks


def check_index(task: Mapping[str, Any]) -> dict[str, Any]:
    location, line, index = place_of(task["place"]), line_of(task["line"]), task["index"]
    asked = 0

    def broken(why: str) -> Finding:
        return tell("index_unreadable", line, f"{_named(index)} can't be asked", examples=[why])

    findings: list[Finding] = []
    try:
        with lancefs.reading(f"asking {index['name']}"):
            table = opened(location, line)
            for finding in _checked(location, line, table, task):
                if isinstance(finding, int):
                    asked += finding
                else:
                    findings.append(finding)
    except lancefs.TableMissing:
        findings.append(tell("version_missing", line, f"version {line.pin.version} of {line.pin.path} is not there"))
    except StorageError as error:
        findings.append(broken(reason(error)))
    return {"findings": [finding_json(f) for f in findings], "asked": asked, "rows_done": 0}


def _named(index: Mapping[str, Any]) -> str:
    return f"the index {index['name']} ({index['kind']})"


def _checked(location: Location, line: Line, table: Any, task: Mapping[str, Any]) -> Iterator[Finding | int]:
    """Findings, and numbers of questions asked, as they come."""
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
    ask = _ask_labels(column) if is_list else _ask_values(column)
    if task["full"]:
        batches = _all_values(line, table, column, task["fragments"], is_list)
        fragments = [table.get_fragment(i) for i in task["fragments"]]
    else:
        batches = iter([_some_values(line, table, column, is_list, task["seed"])])
        fragments = None
    for values in batches:
        filters = [ask(values)] if values else []
        if index["kind"] == "BTREE":
            filters += _ranges(column, values, random.Random(task["seed"]))
        yield len(values) + len(filters)
        for where in filters:
            yield from _compare(location, line, table, index, where, fragments)
    if not is_list:
        yield 1
        yield from _compare(location, line, table, index, f"{name_of(column)} IS NULL", fragments)


def _compare(
    location: Location, line: Line, table: Any, index: Mapping[str, Any], where: str, fragments: list[Any] | None
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
            first = rows[:EXAMPLES_MOST].to_pylist()
            examples = named_rows(location, line, first, ("id", index["column"])) or [f"row {i}" for i in first]
            yield tell(code, line, f"{_named(index)} {text}", count=len(rows), examples=examples)


def _row_ids(table: Any, column: str, where: str, fragments: list[Any] | None, use_index: bool) -> pa.Array:
    # The column is not read where the index answers: what it says is taken as it is, as a query takes it.
    scanner = table.scanner(columns=[], filter=where, fragments=fragments, with_row_id=True, use_scalar_index=use_index)
    found = scanner.to_table().column("_rowid").combine_chunks()
    return found.take(pc.array_sort_indices(found))


def _ask_values(column: str) -> Filter:
    return lambda values: f"{name_of(column)} IN ({', '.join(values)})"


def _ask_labels(column: str) -> Filter:
    return lambda values: f"array_has_any({name_of(column)}, [{', '.join(values)}])"


def _ranges(column: str, values: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Ranges between two of the values, in both directions: one of the two is empty."""
    name = name_of(column)
    for _ in range(SAMPLE_RANGES if len(values) > 1 else 0):
        low, high = chance.sample(list(values), 2)
        yield f"{name} >= {low} AND {name} < {high}"
        yield f"{name} >= {high} AND {name} < {low}"


def _literals(line: Line, column: str, values: pa.Array, is_list: bool) -> list[str]:
    p = line.type.by_name.get(column)
    kind = str(p.type.item) if is_list and p is not None else kind_of(line.type, column)
    found = (literal(kind, value) for value in pc.unique(values).drop_null().to_pylist())
    return [text for text in found if text is not None]


def _flat(batch: Any, column: str, is_list: bool) -> pa.Array:
    values = pa.table(batch).column(column).combine_chunks()
    return pc.list_flatten(values) if is_list else values


def _some_values(line: Line, table: Any, column: str, is_list: bool, seed: int) -> list[str]:
    """Values of rows spread over the whole table."""
    chance = random.Random(seed)
    fragments = table.get_fragments()
    chosen = chance.sample(fragments, min(len(fragments), 8))
    found: dict[str, None] = {}
    for fragment in chosen:
        rows = fragment.count_rows()
        offset = chance.randrange(max(1, rows - SAMPLE_VALUES + 1))
        scanner = table.scanner(columns=[column], fragments=[fragment], offset=offset, limit=SAMPLE_VALUES)
        values = _literals(line, column, _flat(scanner.to_table(), column, is_list), is_list)
        found.update(dict.fromkeys(chance.sample(values, min(len(values), SAMPLE_VALUES))))
    texts = list(found)
    return chance.sample(texts, min(len(texts), SAMPLE_VALUES))


def _all_values(line: Line, table: Any, column: str, fragments: Sequence[int], is_list: bool) -> Iterator[list[str]]:
    scanner = table.scanner(columns=[column], fragments=[table.get_fragment(i) for i in fragments])
    parts = [pc.unique(_flat(batch, column, is_list)) for batch in scanner.to_batches()]
    if not parts:
        return
    values = _literals(line, column, pa.concat_arrays(parts), is_list)
    for start in range(0, len(values), BATCH_VALUES):
        yield values[start : start + BATCH_VALUES]
