"""Rows against rows: ids once, @unique values once, endpoints exist, edges per node as declared.

1. questions  per branch, what must hold between which table versions; a question that two branches share is one
2. digest     per group of fragments: 128-bit digests of ids, endpoints and unique tuples, split into buckets, in files
              of the scratch folder
3. check      per bucket: equal texts have equal digests and so meet there; violations come back as row ids
4. name       the first few of them, by reading those rows

A digest task also counts: every fragment must have as many rows as its version records, and no id or endpoint is null.

Memory depends on the task: a digest task holds a group of fragments, a bucket about `BUCKET_ROWS` digests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import StorageError
from omnigraph.language.schema.model import EdgeType
from omnigraph.maintenance.verify.findings import EXAMPLES_MAX, Finding
from omnigraph.maintenance.verify.reading import reading
from omnigraph.maintenance.verify.scope import Image, Line, line_json, line_of, location_of
from omnigraph.maintenance.verify.tables import (
    finding_json,
    finding_of,
    grouped,
    line_finding,
    live_rows,
    opened,
    tried,
    unreadable,
)
from omnigraph.rules.buckets import Degrees, repeats, too_few, too_many, without_node
from omnigraph.rules.cardinality import is_bounded
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location
from omnigraph.tasks.digest_index import Index
from omnigraph.tasks.digests import digests
from omnigraph.tasks.exchange import Received, Sender, addressed, receive, relation
from omnigraph.tasks.runner import Runner
from omnigraph.tasks.staging import Staging
from omnigraph.write.validate.unique import texts_of

BUCKET_ROWS = 2_000_000
BATCH_ROWS = 65_536
WIDTH = 3
"""A row of an exchange: two words of digest and the row id."""


@dataclass(frozen=True)
class Question:
    """`of` is the line whose rows are checked, `among` the line of nodes that they must match."""

    code: str
    of: Line
    column: str
    among: Line | None = None
    properties: tuple[str, ...] = ()
    low: int = 0
    high: int | None = None

    @property
    def id(self) -> str:
        among = "" if self.among is None else self.among.id
        return f"{self.code}|{self.of.id}|{self.column}|{among}|{self.low}|{self.high}|{','.join(self.properties)}"


def questions_of(images: Sequence[Image], facts: Mapping[str, Any]) -> list[Question]:
    """Every question once, about lines that can be read."""
    by_id: dict[str, Question] = {}
    for image in images:
        lines = {t: line for t, line in image.lines.items() if facts.get(line.version_id, {}).get("whole")}
        for question in _asked(image, lines):
            by_id.setdefault(question.id, question)
    return list(by_id.values())


def _asked(image: Image, lines: Mapping[str, Line]) -> Iterator[Question]:
    for line in lines.values():
        yield Question("duplicate_key", line, "id")
        for number, constraint in enumerate(line.type.constraints):
            if constraint.kind == "unique":
                yield Question("duplicate_value", line, f"u{number}", properties=tuple(constraint.properties))
        if isinstance(line.type, EdgeType):
            yield from _asked_of_edges(image, lines, line, line.type)


def _asked_of_edges(image: Image, lines: Mapping[str, Line], line: Line, e: EdgeType) -> Iterator[Question]:
    for column, name in (("src", e.source), ("dst", e.target)):
        node = image.schema.node.get(name)
        among = None if node is None else lines.get(node.id)
        if among is not None:
            yield Question("dangling_endpoint", line, column, among)
            if column == "src" and is_bounded(e):
                yield Question("cardinality", line, column, among, low=e.card_min, high=e.card_max)


def check_rows(
    runner: Runner,
    location_body: Mapping[str, Any],
    staging: Staging,
    questions: Sequence[Question],
    facts: Mapping[str, Any],
) -> tuple[list[Finding], int]:
    """All findings about rows against rows, and how many rows were digested."""
    columns_by_line = _columns_by_line(questions)
    total = sum(
        rows * len(columns)
        for line, columns in columns_by_line.values()
        for _, rows in facts[line.version_id]["fragments"]
    )
    buckets = max(1, -(-total // BUCKET_ROWS))
    shared = {"place": location_body, "staging": staging.to_json(), "buckets": buckets}
    tasks = [
        {**shared, "line": line_json(line), "id": line_id, "columns": columns, "fragments": group}
        for line_id, (line, columns) in columns_by_line.items()
        for group in grouped(facts[line.version_id]["fragments"])
    ]
    results = runner.run(digest_rows, tasks, stage="reading ids and endpoints")
    broken = {task["id"] for task, result in zip(tasks, results, strict=True) if result["sent"] is None}
    asked = [q for q in questions if not {q.of.id, "" if q.among is None else q.among.id} & broken]
    sent = [result["sent"] for result in results]
    checks = [
        {**shared, "questions": [_question_json(q) for q in asked], "parts": addressed(sent, bucket)}
        for bucket in range(buckets)
    ]
    checked = runner.run(check_bucket, checks, stage="checking rows")
    findings = [f for result in results for f in result["findings"]]
    answers = [
        _answer_finding(location_of(location_body), asked[number], [result[number] for result in checked])
        for number in range(len(asked))
    ]
    return [*(finding_of(f) for f in findings), *(f for f in answers if f is not None)], sum(
        o["rows_done"] for o in results
    )


def _columns_by_line(questions: Sequence[Question]) -> dict[str, tuple[Line, list[str]]]:
    """Per line the relations that some question needs of it."""
    lines: dict[str, tuple[Line, list[str]]] = {}
    for question in questions:
        for line, column in ((question.of, question.column), (question.among, "id")):
            if line is not None:
                columns = lines.setdefault(line.id, (line, []))[1]
                if column not in columns:
                    columns.append(column)
    return lines


def _question_json(question: Question) -> dict[str, Any]:
    return {
        "code": question.code,
        "of": question.of.id,
        "column": question.column,
        "among": None if question.among is None else question.among.id,
        "low": question.low,
        "high": question.high,
    }


# ---- tasks -----------------------------------------------------------------------------------------------------------


def digest_rows(task: Mapping[str, Any]) -> dict[str, Any]:
    location, line = location_of(task["place"]), line_of(task["line"])
    sender = Sender(task["buckets"], width=WIDTH)
    tally: _Tally | None = None

    def work() -> list[Finding]:
        nonlocal sender, tally
        sender, tally = Sender(task["buckets"], width=WIDTH), None
        table = opened(location, line)
        names = _columns(line, task["columns"])
        fragments = [table.get_fragment(i) for i in task["fragments"]]
        scanner = table.scanner(
            columns=names, fragments=fragments, with_row_id=True, with_row_address=True, batch_size=BATCH_ROWS
        )
        counted = _Tally()
        for batch in scanner.to_batches():
            rows = pa.table(batch)
            counted.add(rows)
            _send(line, task["id"], rows, task["columns"], sender)
        findings = list(counted.findings(line, [f.metadata.to_json() for f in fragments]))
        tally = counted
        return findings

    findings = tried(location, work, lambda why: unreadable(line, why, count=len(task["fragments"])))
    sent = None if tally is None else sender.send(Staging.of(task["staging"]), "digests")
    rows_done = 0 if tally is None else tally.rows.total()
    return {"findings": [finding_json(f) for f in findings], "sent": sent, "rows_done": rows_done}


class _Tally:
    """How many rows each fragment has, and which have no id or endpoint."""

    def __init__(self) -> None:
        self.rows: Counter[int] = Counter()
        self._nulls: dict[str, list[str]] = {}

    def add(self, rows: pa.Table) -> None:
        fragments = np.asarray(rows.column("_rowaddr").combine_chunks()) >> np.uint64(32)
        for fragment, count in zip(*np.unique(fragments, return_counts=True), strict=True):
            self.rows[int(fragment)] += int(count)
        for name in {"id", "src", "dst"}.intersection(rows.column_names):
            nulls = rows.column(name).is_null()
            if name != "id" and "id" in rows.column_names:
                named = [repr(i) for i in rows.column("id").filter(nulls).to_pylist()]
            else:
                named = [f"row {i}" for i in rows.column("_rowid").filter(nulls).to_pylist()]
            self._nulls.setdefault(name, []).extend(named)

    def findings(self, line: Line, fragments: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
        wrong = []
        for fragment in fragments:
            counted, recorded = self.rows[fragment["id"]], live_rows(fragment)
            deletion = fragment.get("deletion_file")
            is_recorded = not deletion or deletion.get("num_deleted_rows")
            if is_recorded and counted != recorded:
                wrong.append(f"fragment {fragment['id']}: {counted} rows, not {recorded}")
        if wrong:
            text = f"version {line.pin.version} of {line.pin.path} has other rows than it records"
            yield line_finding("wrong_rows", line, text, count=len(wrong), examples=wrong)
        for name, named in sorted(self._nulls.items()):
            if named:
                text = "rows have no id" if name == "id" else f"edges have no {name}"
                yield line_finding("null_key", line, text, count=len(named), examples=named)


def _columns(line: Line, relations: Sequence[str]) -> list[str]:
    names: list[str] = []
    for name in relations:
        names += line.type.constraints[int(name[1:])].properties if name not in ("id", "src", "dst") else (name,)
    return list(dict.fromkeys(names))


def _send(line: Line, line_id: str, rows: pa.Table, relations: Sequence[str], sender: Sender) -> None:
    row_ids = np.asarray(rows.column("_rowid").combine_chunks())
    for name in relations:
        if name in ("id", "src", "dst"):
            texts = rows.column(name).combine_chunks()
        else:
            texts = texts_of(line.type, rows, line.type.constraints[int(name[1:])].properties)
        is_valid = np.asarray(texts.is_valid())
        sender.add(relation(name, line_id), digests(texts.drop_null()), row_ids[is_valid])


def check_bucket(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each question how many rows break it, and the row ids of the first of them."""
    received = receive(Staging.of(task["staging"]), task["parts"])
    answers = {"duplicate_key": _repeated, "duplicate_value": _repeated}
    answers |= {"dangling_endpoint": _missing, "cardinality": _degrees}
    return [answers[question["code"]](received, question) for question in task["questions"]]


def _answer(row_ids: np.ndarray, *, leads: np.ndarray | None = None, count: int | None = None) -> dict[str, Any]:
    """`rows`: the first of them, each behind the row id that its group is sorted by, which by default is its own."""
    leads = row_ids if leads is None else leads
    first = np.lexsort((row_ids, leads))[:EXAMPLES_MAX]
    rows = [[int(leads[i]), int(row_ids[i])] for i in first]
    return {"count": len(row_ids) if count is None else count, "rows": rows}


def _repeated(received: Received, question: Mapping[str, Any]) -> dict[str, Any]:
    """Counts those that are too many, and shows them beside the row that was there before them."""
    rows = received.of(question["column"], question["of"], width=WIDTH)
    repeated = repeats(rows)
    groups, again = repeated.firsts, repeated.again
    if not again.any():
        return _answer(rows[again, 2])
    clashing = np.flatnonzero(np.isin(groups, groups[again]))
    leads = np.full(len(rows), np.iinfo(rows.dtype).max, dtype=rows.dtype)
    np.minimum.at(leads, groups[clashing], rows[clashing, 2])
    return _answer(rows[clashing, 2], leads=leads[groups[clashing]], count=int(again.sum()))


def _missing(received: Received, question: Mapping[str, Any]) -> dict[str, Any]:
    rows = received.of(question["column"], question["of"], width=WIDTH)
    nodes = received.of("id", question["among"], width=WIDTH)
    return _answer(without_node(rows, Index(nodes))[:, 2])


def _degrees(received: Received, question: Mapping[str, Any]) -> dict[str, Any]:
    """Nodes whose number of edges is not within the bounds; the rows are those of the nodes."""
    nodes = received.of("id", question["among"], width=WIDTH)
    starts = received.of(question["column"], question["of"], width=WIDTH)
    degrees = Degrees(nodes)
    counts = degrees.count(starts)
    wrong = (too_few(counts, question["low"]) | too_many(counts, question["high"])) & degrees.is_source
    return _answer(nodes[wrong, 2])


# ---- telling ---------------------------------------------------------------------------------------------------------


def _answer_finding(location: Location, question: Question, answers: Sequence[Mapping[str, Any]]) -> Finding | None:
    count = sum(answer["count"] for answer in answers)
    if count == 0:
        return None
    rows = [row for _, row in sorted(pair for answer in answers for pair in answer["rows"])][:EXAMPLES_MAX]
    named = question.among if question.code == "cardinality" else question.of
    assert named is not None
    ends = ("src", "dst") if isinstance(named.type, EdgeType) else ()
    columns = {"duplicate_key": ("id", *ends), "duplicate_value": ("id", *question.properties), "cardinality": ("id",)}
    twice = question.code == "duplicate_key"
    examples = named_rows(location, named, rows, columns.get(question.code, ("id", question.column)), numbered=twice)
    return line_finding(question.code, question.of, _sentence(question), count=count, examples=examples)


def _sentence(question: Question) -> str:
    t = question.of.type
    if question.code == "duplicate_key":
        return "rows have an id that another row has"
    if question.code == "duplicate_value":
        return f"rows share a value of {', '.join(question.properties)}, which is declared @unique"
    assert isinstance(t, EdgeType)
    if question.code == "cardinality":
        maximum = "" if question.high is None else str(question.high)
        return f"nodes of {t.source} have a number of {t.name} edges that is not {question.low}..{maximum}"
    end = t.source if question.column == "src" else t.target
    return f"edges have a {question.column} that is no {end}"


def named_rows(
    location: Location, line: Line, row_ids: Sequence[int], columns: Sequence[str], *, numbered: bool = False
) -> list[str]:
    """Rows as text, by their values in some columns; `numbered` where these may be the same."""
    if not row_ids:
        return []
    where = f"_rowid IN ({','.join(str(i) for i in row_ids)})"
    names = list(dict.fromkeys(columns))
    try:
        with reading("naming rows"):
            table = opened(location, line)
            rows = table.to_table(columns=names, filter=where, with_row_id=True, use_scalar_index=False)
    except (StorageError, lance_api.TableMissing):
        return [f"row {i}" for i in row_ids]
    by_id = {row.pop("_rowid"): row for row in rows.to_pylist()}
    return [_row_text(by_id[i]) + (f" (row {i})" if numbered else "") for i in row_ids if i in by_id]


def _row_text(row: Mapping[str, Any]) -> str:
    return " ".join(f"{k}={v!r}" if k != "id" else repr(v) for k, v in row.items())
