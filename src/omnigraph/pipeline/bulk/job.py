"""The stages of one bulk load, as the driver runs them. The driver has names and counts; rows stay with the tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph.commit.operation import View
from omnigraph.language.schema.model import EdgeType, EntityType, NodeType, Schema
from omnigraph.pipeline.bulk.check import check_bucket
from omnigraph.pipeline.bulk.compare import compare_piece
from omnigraph.pipeline.bulk.context import stage_context
from omnigraph.pipeline.bulk.existing import pin_json, read_existing
from omnigraph.pipeline.bulk.input.input_splits import Piece
from omnigraph.pipeline.bulk.input.read import read_piece
from omnigraph.pipeline.bulk.rejects.explain import Places
from omnigraph.tasks.exchange import addressed
from omnigraph.tasks.runner import Runner
from omnigraph.tasks.staging import Staging

ROWS_PER_BUCKET = 1_000_000
BUCKETS_MAX = 1024
EXISTING_ROWS_PER_TASK = 1_000_000
AMONG_MAX = 2_000_000
"""If the input has more values, they are not sent to the tasks that scan the graph."""
ROW_BYTES = 64
"""The minimum size of an input row, to estimate the number of rows before they are read."""


@dataclass
class State:
    """The state of the input rows so far: which are removed, why, and which replace rows of the graph."""

    removed: dict[str, list[str]] = field(default_factory=dict)
    removed_max: Counter[str] = field(default_factory=Counter)
    """The maximum number of removed rows of a type: a row may be counted twice."""
    violation_files: list[tuple[int, str]] = field(default_factory=list)
    existing: list[int] | None = None
    """The first row with an id that the graph has, as a violation of `ViolationLog`."""
    matches: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)

    def remove(self, key: str, name: str, count: int) -> None:
        self.removed.setdefault(key, []).append(name)
        self.removed_max[key] += count

    def drop(self, dropped: Mapping[str, Sequence[Any]]) -> None:
        for key, (name, count) in dropped.items():
            self.remove(key, name, count)

    def match_files(self) -> dict[str, list[str]]:
        return {key: [m["file"] for m in matches] for key, matches in self.matches.items()}

    def match_slices(self, key: str, piece: int) -> list[list[Any]]:
        """The slices of files that hold the matches of one piece's rows."""
        slices: list[list[Any]] = []
        for match in self.matches.get(key, ()):
            start = 0
            for number, count in zip(match["pieces"], match["counts"], strict=True):
                if number == piece:
                    slices.append([match["file"], start, count])
                start += count
        return slices


class Job:
    """The tasks of one load: the input is read once, and checked against each view that the committer prepares on."""

    def __init__(
        self,
        runner: Runner,
        staging: Staging,
        schema: Schema,
        pieces: Sequence[Piece],
        *,
        mode: str,
        size_bytes: int,
        existing_rows: int,
        named: Iterable[str] = (),
    ) -> None:
        """`named` are the keys of types that a table was passed for, even if it has no rows."""
        self.runner = runner
        self.staging = staging
        self.schema = schema
        self.pieces = pieces
        self.mode = mode
        self._named = frozenset(named)
        rows = size_bytes // ROW_BYTES + existing_rows
        self.buckets = max(1, min(BUCKETS_MAX, max(runner.parallelism, rows // ROWS_PER_BUCKET)))
        self.context = stage_context(staging, schema, mode=mode, buckets=self.buckets)
        self.types = {t.key: t for t in schema.types()}
        self.read: list[Mapping[str, Any]] = []
        self._existing: dict[str, tuple[Any, list[Mapping[str, Any]]]] = {}

    # ---- the input ---------------------------------------------------------------------------------------------------

    def read_inputs(self) -> None:
        tasks = [{"context": self.context, "piece": piece} for piece in self.pieces]
        self.read = self.runner.run(read_piece, tasks, stage="reading")

    @property
    def places(self) -> Places:
        return Places(self.pieces, [r["segments"] for r in self.read])

    @property
    def row_counts(self) -> dict[str, int]:
        """Rows per type key, of types that the input holds."""
        counts: Counter[str] = Counter()
        for result in self.read:
            counts.update({key: about["rows"] for key, about in result["types"].items()})
        return {key: counts[key] for key in self.types if counts[key]}

    @property
    def own_ids(self) -> list[str]:
        return sorted({key for result in self.read for key, about in result["types"].items() if about["own_ids"]})

    @property
    def touched(self) -> list[str]:
        """Keys of the types that this load changes: with rows, or, to be overwritten, named by a table or a line."""
        row_counts = self.row_counts
        if self.mode != "overwrite":
            return list(row_counts)
        named = self._named.union(*(result["named"] for result in self.read))
        return [key for key in self.types if key in row_counts or key in named]

    @property
    def overwritten(self) -> list[str]:
        return self.touched if self.mode == "overwrite" else []

    def tables(self) -> dict[str, str]:
        """The staged table of each piece and type."""
        return {
            f"{result['piece']}|{key}": about["table"] for result in self.read for key, about in result["types"].items()
        }

    @property
    def has_rejected_lines(self) -> bool:
        """Whether the input has lines that are no rows of any type."""
        return any(result["rejected"] is not None for result in self.read)

    # ---- existing rows -----------------------------------------------------------------------------------------------

    def relations(self, view: View) -> dict[str, tuple[set[str], bool]]:
        """The relations of the graph's tables that checks need, and whether rows that the input lacks matter."""
        touched, overwritten = self.touched, set(self.overwritten)
        relations: dict[str, tuple[set[str], bool]] = {}

        def want(t: EntityType, *names: str, whole: bool = False) -> None:
            wants, was_whole = relations.get(t.key, (set(), False))
            relations[t.key] = (wants | set(names), was_whole or whole)

        for key in touched:
            t = self.types[key]
            if key not in overwritten:
                if key in self.own_ids:
                    want(t, "id")
                if any(c.kind == "unique" for c in t.constraints):
                    want(t, "unique", whole=True)
            if isinstance(t, EdgeType):
                for name in (t.source, t.target):
                    if self.schema.node[name].key not in overwritten:
                        want(self.schema.node[name], "id")
            elif isinstance(t, NodeType) and key in overwritten:
                want(t, "id", whole=True)
                for e in self.schema.incident_edges(t.name):
                    if e.key not in overwritten:
                        want(e, "src", "dst", whole=True)
        for e in self.schema.edges:
            if self._counts_degrees(e, touched):
                want(e, "src", whole=True)
                want(self.schema.node[e.source], "id", whole=True)
        return {key: wants for key, wants in relations.items() if view.count(self.types[key])}

    def _counts_degrees(self, e: EdgeType, touched: Sequence[str]) -> bool:
        if e.key in touched and (e.card_min > 0 or e.card_max is not None):
            return True
        return e.card_min > 0 and self.schema.node[e.source].key in touched

    def read_existing(self, view: View) -> list[Mapping[str, Any]]:
        """The digests of existing rows; tables that are unchanged since the last view are not read again."""
        tasks = []
        relations = self.relations(view)
        for key, (wants, whole) in relations.items():
            t = self.types[key]
            pin = view.pins[t.id]
            cached = self._existing.get(key)
            if cached is not None and cached[0] == pin:
                continue
            self._existing[key] = (pin, [])
            among = None if whole else self._among(t, view.count(t))
            for group in _fragment_groups(view.open(t), self.runner.parallelism):
                about = {"context": self.context, "type": key, "pin": pin_json(pin), "fragments": group}
                tasks.append({**about, "wants": sorted(wants), "among": among})
        for result in self.runner.run(read_existing, tasks, stage="looking into the graph"):
            if result["sent"] is not None:
                self._existing[result["type"]][1].append(result["sent"])
        return [sent for key in relations for sent in self._existing[key][1]]

    def _among(self, t: EntityType, existing: int) -> list[list[str]] | None:
        """The staged columns that name ids of this type, if they are few compared with the rows of the graph."""
        columns: list[list[str]] = []
        total = 0
        for result in self.read:
            for key, about in result["types"].items():
                other = self.types[key]
                names = ["id"] if other is t else []
                if isinstance(other, EdgeType):
                    names += [c for c, n in (("src", other.source), ("dst", other.target)) if n == t.name]
                columns += [[about["table"], column] for column in names]
                total += about["rows"] * len(names)
        return columns if total <= min(AMONG_MAX, existing // 4) else None

    # ---- checks ------------------------------------------------------------------------------------------------------

    def check(
        self, existing: Sequence[Mapping[str, Any]], state: State, asks: Iterable[str], *, blames: bool
    ) -> list[Mapping[str, Any]]:
        sent = [result["sent"] for result in self.read]
        about = {
            "context": self.context,
            "gone": state.removed,
            "matches": state.match_files(),
            "asks": sorted(asks),
            "overwritten": self.overwritten,
            "own_ids": self.own_ids,
            "blames": blames,
        }
        tasks = [
            {**about, "inputs": addressed(sent, bucket), "existing": addressed(existing, bucket)}  # type: ignore[arg-type]
            for bucket in range(self.buckets)
        ]
        return self.runner.run(check_bucket, tasks, stage="checking")

    def compare(self, view: View, state: State) -> None:
        """Drop the matched rows that are equal to their rows in the graph."""
        tasks = []
        for result in self.read:
            types = {}
            for key, about in result["types"].items():
                slices = state.match_slices(key, result["piece"])
                if slices:
                    pin = pin_json(view.pins[self.types[key].id])
                    types[key] = {"table": about["table"], "pin": pin, "matches": slices}
            if types:
                tasks.append({"context": self.context, "gone": state.removed, "types": types})
        for comparison in self.runner.run(compare_piece, tasks, stage="comparing"):
            state.drop(comparison["dropped"])


def _fragment_groups(table: Any, parallelism: int) -> list[list[int]]:
    """Fragments in groups of about equal rows: enough for every worker, none too large."""
    sizes = [(f.fragment_id, f.metadata.physical_rows) for f in table.get_fragments()]
    total = sum(size for _, size in sizes)
    rows_max = max(1, min(EXISTING_ROWS_PER_TASK, total // max(1, parallelism) + 1))
    groups: list[list[int]] = []
    group_rows = rows_max
    for number, size in sizes:
        if group_rows + size > rows_max:
            groups.append([])
            group_rows = 0
        groups[-1].append(number)
        group_rows += size
    return groups
