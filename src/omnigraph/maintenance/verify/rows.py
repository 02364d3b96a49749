"""Rows against rows: ids once, @unique values once, endpoints there, edges per node as declared.

1. questions  per branch, what must hold between which table versions; a question that two branches share is one
2. digest     per group of fragments: 128-bit digests of ids, endpoints and unique tuples, cut into buckets, into files
              of the scratch place
3. check      per bucket: equal texts have equal digests and so meet there; violations come back as row ids
4. name       the first few of them, by reading those rows

Memory follows the task: a digest task holds a group of fragments, a bucket about `BUCKET_ROWS` digests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.language.schema.model import EdgeType
from omnigraph.maintenance.verify.findings import EXAMPLES_MOST, Finding
from omnigraph.maintenance.verify.scope import Image, Line, line_json, line_of, place_of
from omnigraph.maintenance.verify.tables import finding_json, finding_of, grouped, opened, tell, tried
from omnigraph.pipeline.bulk.digest import digests
from omnigraph.pipeline.bulk.exchange import Received, Sender, addressed, receive, relation
from omnigraph.pipeline.bulk.index import Index
from omnigraph.pipeline.bulk.staging import Staging
from omnigraph.pipeline.runner import Runner
from omnigraph.storage.layout import Location
from omnigraph.write.validate.unique import texts_of

DIGEST_ROWS = "omnigraph.maintenance.verify.rows:digest_rows"
CHECK_BUCKET = "omnigraph.maintenance.verify.rows:check_bucket"
BUCKET_ROWS = 2_000_000
BATCH_ROWS = 65_536
WIDTH = 3
"""A row of an exchange: two words of digest and the row id."""


@dataclass(frozen=True)
class Question:
    """`of` is the line whose rows are asked about, `among` the line of nodes that they must agree with."""

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
    found: dict[str, Question] = {}
    for image in images:
        lines = {t: line for t, line in image.lines.items() if facts.get(line.at, {}).get("whole")}
        for question in _asked(image, lines):
            found.setdefault(question.id, question)
    return list(found.values())


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
            if column == "src" and (e.card_min > 0 or e.card_max is not None):
                yield Question("cardinality", line, column, among, low=e.card_min, high=e.card_max)


def check_rows(
    runner: Runner,
    place: Mapping[str, Any],
    staging: Staging,
    questions: Sequence[Question],
    facts: Mapping[str, Any],
) -> tuple[list[Finding], int]:
    """All findings about rows against rows, and how many rows were digested."""
    wanted = _wanted(questions)
    total = sum(rows * len(columns) for line, columns in wanted.values() for _, rows in facts[line.at]["fragments"])
    buckets = max(1, -(-total // BUCKET_ROWS))
    shared = {"place": place, "staging": staging.to_json(), "buckets": buckets}
    tasks = [
        {**shared, "line": line_json(line), "id": line_id, "columns": columns, "fragments": group}
        for line_id, (line, columns) in wanted.items()
        for group in grouped(facts[line.at]["fragments"])
    ]
    made = runner.run(DIGEST_ROWS, tasks, stage="reading ids and endpoints")
    broken = {task["id"] for task, one in zip(tasks, made, strict=True) if one["findings"]}
    asked = [q for q in questions if not {q.of.id, "" if q.among is None else q.among.id} & broken]
    sent = [one["sent"] for one in made]
    checks = [
        {**shared, "questions": [_question_json(q) for q in asked], "parts": addressed(sent, bucket)}
        for bucket in range(buckets)
    ]
    checked = runner.run(CHECK_BUCKET, checks, stage="checking rows")
    findings = [f for one in made for f in one["findings"]]
    told = [_told(place_of(place), asked[number], [one[number] for one in checked]) for number in range(len(asked))]
    return [*(finding_of(f) for f in findings), *(f for f in told if f is not None)], sum(o["rows_done"] for o in made)


def _wanted(questions: Sequence[Question]) -> dict[str, tuple[Line, list[str]]]:
    """Per line the relations that some question needs of it."""
    found: dict[str, tuple[Line, list[str]]] = {}
    for question in questions:
        for line, column in ((question.of, question.column), (question.among, "id")):
            if line is not None:
                columns = found.setdefault(line.id, (line, []))[1]
                if column not in columns:
                    columns.append(column)
    return found


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
    location, line = place_of(task["place"]), line_of(task["line"])
    sender = Sender(task["buckets"], width=WIDTH)
    done = 0

    def work() -> list[Finding]:
        nonlocal sender, done
        sender, done = Sender(task["buckets"], width=WIDTH), 0
        table = opened(location, line)
        names = _columns(line, task["columns"])
        scanner = table.scanner(
            columns=names,
            fragments=[table.get_fragment(i) for i in task["fragments"]],
            with_row_id=True,
            batch_size=BATCH_ROWS,
        )
        for batch in scanner.to_batches():
            done += batch.num_rows
            _send(line, task["id"], pa.table(batch), task["columns"], sender)
        return []

    def told(why: str) -> Finding:
        text = f"rows of {line.pin.path} at version {line.pin.version} can't be read"
        return tell("unreadable_data", line, text, count=len(task["fragments"]), examples=[why])

    findings = tried(location, work, told)
    sent = None if findings else sender.send(Staging.of(task["staging"]), "digests")
    return {"findings": [finding_json(f) for f in findings], "sent": sent, "rows_done": done}


def _columns(line: Line, relations: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in relations:
        found += line.type.constraints[int(name[1:])].properties if name not in ("id", "src", "dst") else (name,)
    return list(dict.fromkeys(found))


def _send(line: Line, line_id: str, rows: pa.Table, relations: Sequence[str], sender: Sender) -> None:
    row_ids = np.asarray(rows.column("_rowid").combine_chunks())
    for name in relations:
        if name in ("id", "src", "dst"):
            texts = rows.column(name).combine_chunks()
        else:
            texts = texts_of(line.type, rows, line.type.constraints[int(name[1:])].properties)
        held = np.asarray(texts.is_valid())
        sender.add(relation(name, line_id), digests(texts.drop_null()), row_ids[held])


def check_bucket(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each question how many rows break it, and the row ids of the first of them."""
    held = receive(Staging.of(task["staging"]), task["parts"])
    answers = {"duplicate_key": _repeated, "duplicate_value": _repeated}
    answers |= {"dangling_endpoint": _missing, "cardinality": _degrees}
    return [answers[question["code"]](held, question) for question in task["questions"]]


def _answer(row_ids: np.ndarray, **more: Any) -> dict[str, Any]:
    return {"count": len(row_ids), "rows": np.sort(row_ids)[:EXAMPLES_MOST].tolist(), **more}


def _repeated(held: Received, question: Mapping[str, Any]) -> dict[str, Any]:
    rows = held.of(question["column"], question["of"], width=WIDTH)
    again = Index(rows).groups() != np.arange(len(rows))
    return _answer(rows[again, 2])


def _missing(held: Received, question: Mapping[str, Any]) -> dict[str, Any]:
    rows = held.of(question["column"], question["of"], width=WIDTH)
    nodes = held.of("id", question["among"], width=WIDTH)
    return _answer(rows[Index(nodes).find(rows) < 0, 2])


def _degrees(held: Received, question: Mapping[str, Any]) -> dict[str, Any]:
    """Nodes whose number of edges is not within the bounds; the rows are those of the nodes."""
    nodes = held.of("id", question["among"], width=WIDTH)
    starts = held.of(question["column"], question["of"], width=WIDTH)
    at = Index(nodes).find(starts)
    degrees = np.bincount(at[at >= 0], minlength=len(nodes))
    wrong = degrees < question["low"]
    if question["high"] is not None:
        wrong |= degrees > question["high"]
    return _answer(nodes[wrong, 2])


# ---- telling ---------------------------------------------------------------------------------------------------------


def _told(location: Location, question: Question, answers: Sequence[Mapping[str, Any]]) -> Finding | None:
    count = sum(answer["count"] for answer in answers)
    if count == 0:
        return None
    rows = sorted(row for answer in answers for row in answer["rows"])[:EXAMPLES_MOST]
    named = question.among if question.code == "cardinality" else question.of
    assert named is not None
    columns = {"duplicate_key": ("id",), "duplicate_value": ("id", *question.properties), "cardinality": ("id",)}
    examples = named_rows(location, named, rows, columns.get(question.code, ("id", question.column)))
    return tell(question.code, question.of, _sentence(question), count=count, examples=examples)


def _sentence(question: Question) -> str:
    t = question.of.type
    if question.code == "duplicate_key":
        return "rows have an id that another row has"
    if question.code == "duplicate_value":
        return f"rows share a value of {', '.join(question.properties)}, which is declared @unique"
    assert isinstance(t, EdgeType)
    if question.code == "cardinality":
        most = "" if question.high is None else str(question.high)
        return f"nodes of {t.source} have a number of {t.name} edges that is not {question.low}..{most}"
    end = t.source if question.column == "src" else t.target
    return f"edges have a {question.column} that is no {end}"


def named_rows(location: Location, line: Line, row_ids: Sequence[int], columns: Sequence[str]) -> list[str]:
    """The first rows in words, by their values in some columns."""
    if not row_ids:
        return []
    table = opened(location, line)
    where = f"_rowid IN ({','.join(str(i) for i in row_ids)})"
    try:
        found = table.to_table(columns=list(dict.fromkeys(columns)), filter=where, use_scalar_index=False)
    except (OSError, ValueError, RuntimeError):
        return [f"row {i}" for i in row_ids]
    return [" ".join(f"{k}={v!r}" if k != "id" else repr(v) for k, v in row.items()) for row in found.to_pylist()]
