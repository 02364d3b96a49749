"""Claim: reading NDJSON into typed, validated tables costs well under 1.5 times what orjson alone costs on the file.

One run measures both, alternating, on the same file of 200,000 lines of three types (about 110 bytes a line):

- limit: `for line in file: orjson.loads(line)`, which checks and keeps nothing
- ours:  `envelope.parse` and `prepare_load` (all rules of the schema) into an empty graph in memory

Run: python benchmarks/parse_envelope.py [--lines 200000] [--rounds 9] [--threads 2]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa

from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.language.schema.syntax.parse import parse_schema
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.write.envelope import chunks_of, parse
from omnigraph.write.load import prepare_load

SCHEMA = """
node Person { name: String @key  age: I32?  score: F64  city: enum(bern, oslo, rome)  active: Bool  @range(age,
0..150) } node Company { slug: String @key  employees: I64  founded: Date  note: String? }
edge Knows: Person -> Person @card(0..1000) { since: DateTime  weight: F64 }
"""


class EmptyReader:
    """A graph without rows."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def find(self, t: EntityType, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        rows = [pa.field(name, pa.uint64()) for name in ("_rowid", "_rowaddr")]
        return pa.schema([arrow_schema(t).field(name) for name in columns] + rows).empty_table()

    def count(self, t: EntityType) -> int:
        return 0

    def scan(self, t: EntityType, columns: Sequence[str]) -> pa.RecordBatchReader:
        return arrow_schema(t).empty_table().select(list(columns)).to_reader()


def write_lines(path: Path, count: int, seed: int) -> None:
    r = random.Random(seed)
    people = [f"person-{i:07d}" for i in range(int(count * 0.4))]
    lines = [
        {
            "type": "Person",
            "data": {
                "name": name,
                "age": r.randint(0, 99),
                "score": round(r.random() * 100, 3),
                "city": r.choice(["oslo", "bern", "rome"]),
                "active": r.random() < 0.5,
            },
        }
        for name in people
    ]
    for i in range(int(count * 0.2)):
        founded = f"2001-05-{r.randint(1, 28):02d}"
        data = {"slug": f"company-{i:07d}", "employees": r.randint(1, 100000), "founded": founded, "note": "some text"}
        lines.append({"type": "Company", "data": data})
    while len(lines) < count:
        since = f"2020-01-{r.randint(1, 28):02d}T10:00:00Z"
        data = {"since": since, "weight": round(r.random(), 4)}
        lines.append({"edge": "Knows", "from": r.choice(people), "to": r.choice(people), "data": data})
    r.shuffle(lines)
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


@dataclass(frozen=True)
class Times:
    """Seconds on the clock and of processor time."""

    wall_s: float
    cpu_s: float


@contextmanager
def timed(into: list[Times]) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    into.append(Times(time.perf_counter() - wall, time.process_time() - cpu))


def orjson_alone(path: Path) -> None:
    with path.open("rb") as f:
        for line in f:
            orjson.loads(line)


def prepared_rows(path: Path, schema: Schema, threads: int) -> int:
    with path.open("rb") as f:
        parsed = parse(schema, chunks_of(f), threads=threads)
    prepared = prepare_load(schema, parsed, EmptyReader(schema), mode="append")
    return sum(d.rows.num_rows for d in prepared.deltas.values())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--lines", type=int, default=200_000)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    schema = parse_schema(SCHEMA)
    limits: list[Times] = []
    ours: list[Times] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.ndjson"
        write_lines(path, given.lines, given.seed)
        print(f"{given.lines} lines, {path.stat().st_size / given.lines:.0f} bytes a line, seed {given.seed}")
        for i in range(given.rounds):
            with timed(limits):
                orjson_alone(path)
            with timed(ours):
                rows = prepared_rows(path, schema, given.threads)
            assert rows == given.lines
            print(
                f"round {i}: orjson {limits[-1].wall_s:.3f} s; ours {ours[-1].wall_s:.3f} s, cpu {ours[-1].cpu_s:.3f} s"
            )
    median, best = statistics.median, min
    for name, pick in (("median", median), ("best", best)):
        wall = pick([t.wall_s for t in ours]) / pick([t.wall_s for t in limits])
        cpu = pick([t.cpu_s for t in ours]) / pick([t.cpu_s for t in limits])
        print(f"{name}: {wall:.2f} times orjson alone on {given.threads} threads (bar 1.5), {cpu:.2f} times its cpu")
    print(f"first round, cold: {ours[0].wall_s / limits[0].wall_s:.2f} times")


if __name__ == "__main__":
    main()
