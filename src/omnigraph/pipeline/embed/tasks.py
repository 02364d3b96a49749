"""The tasks of embed, as they run on workers: look, ask, write. Each turns a JSON value into a JSON value."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.pipeline.embed.plan import Unit
from omnigraph.pipeline.embed.provider import Choice, Provider, make
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.column_files import base_of, write_columns
from omnigraph.storage.lance.embedding_marks import MARK_TYPE, model_digest, pairs_of, text_digests, to_marks
from omnigraph.storage.lance.tables import name_of
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.tasks.staging import Staging

if TYPE_CHECKING:
    from lance import LanceDataset

CHUNK_ROWS = 4096


@dataclass(frozen=True)
class Looked:
    """Rows of a chunk: addresses, texts and digests of those to embed, addresses of those to clear; the others."""

    addresses: np.ndarray
    texts: pa.Array
    digests: np.ndarray
    cleared: np.ndarray
    rows: int
    given: int
    blank: int
    foreign: int


def look(table: LanceDataset, unit: Unit, fragment: int, *, offset: int, rows: int, everything: bool) -> Looked:
    """Which rows of a part of a fragment need a vector."""
    where: dict[str, Any] = {"fragments": [table.get_fragment(fragment)], "offset": offset, "limit": rows}
    has_marks = unit.mark in table.schema.names
    columns = [unit.source, *([unit.mark] if has_marks else [])]
    with lance_api.reading(f"reading {unit.table_key}"):
        found = table.scanner(columns=columns, with_row_address=True, **where).to_table().combine_chunks()
    count = found.num_rows
    texts = _one(found[unit.source])
    marks = _one(found[unit.mark]) if has_marks else pa.nulls(count, MARK_TYPE)
    blank = np.asarray(pc.fill_null(pc.equal(pc.utf8_trim_whitespace(texts), ""), True))
    held = np.asarray(marks.is_valid())
    pairs = pairs_of(marks)
    stale = held & ~pairs.any(axis=1)
    ours = held & ~stale & (pairs[:, 0] == np.frombuffer(model_digest(unit.choice.model), dtype="<u8")[0])
    foreign = held & ~stale & ~ours
    missing = np.zeros(count, dtype=bool)
    if not everything and (~held & ~blank).any():
        with lance_api.reading(f"reading {unit.table_key}"):
            told = table.scanner(columns={"missing": f"{name_of(unit.vector)} IS NULL"}, **where).to_table()
        missing = ~held & np.asarray(_one(told["missing"]))
    digests = np.zeros(count, dtype=np.uint64)
    asked = np.flatnonzero(~blank & (held | missing | everything))
    digests[asked] = text_digests(texts.take(pa.array(asked)).to_pylist())
    need = ~blank & (stale | foreign | missing | (ours & (digests != pairs[:, 1])) | everything)
    clear = blank & held & unit.nullable
    addresses = np.asarray(_one(found["_rowaddr"]))
    return Looked(
        addresses=addresses[need],
        texts=texts.filter(pa.array(need)),
        digests=digests[need],
        cleared=addresses[clear],
        rows=count,
        given=int((~blank & ~held & ~need).sum()),
        blank=int((blank & ~clear).sum()),
        foreign=int(foreign.sum()),
    )


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _opened(task: Mapping[str, Any]) -> tuple[Location, Pin, LanceDataset]:
    location = Location(task["uri"], task["local"], task["options"])
    pin = Pin.from_json(task["table"], task["pin"])
    return location, pin, lance_api.open_table(location, location.join(pin.path), version=pin.version)


def place(location: Location, pin: Pin) -> dict[str, Any]:
    """What a task needs to open a table."""
    return {
        "uri": location.uri,
        "local": location.is_local,
        "options": dict(location.options),
        "table": pin.table,
        "pin": pin.to_json(),
    }


# ---- look ------------------------------------------------------------------------------------------------------------


def survey(task: Mapping[str, Any]) -> dict[str, Any]:
    """Count what some fragments need, chunk by chunk; chunks that need nothing are left out."""
    _, _, table = _opened(task)
    unit = Unit.of(task["unit"])
    chunks: list[list[int]] = []
    totals = dict.fromkeys(("given", "blank", "foreign", "rows_done"), 0)
    for fragment in task["fragments"]:
        live = table.get_fragment(fragment).count_rows()
        for offset in range(0, live, task["chunk_rows"]):
            size = min(task["chunk_rows"], live - offset)
            seen = look(table, unit, fragment, offset=offset, rows=size, everything=task["everything"])
            if len(seen.addresses) or len(seen.cleared):
                counts = (len(seen.addresses), len(seen.cleared), seen.texts.nbytes)
                chunks.append([fragment, offset, size, *counts])
            for name in ("given", "blank", "foreign"):
                totals[name] += getattr(seen, name)
            totals["rows_done"] += seen.rows
    return {"chunks": chunks, **totals}


# ---- ask -------------------------------------------------------------------------------------------------------------


def embed_chunks(task: Mapping[str, Any]) -> dict[str, Any]:
    """Get the vectors of some chunks and stage them: one file per fragment, with addresses, vectors and marks.

    `known` names staged files whose vectors are taken first; with `only_known` nobody is asked for others, and rows
    without are left out.
    """
    _, _, table = _opened(task)
    unit, staging = Unit.of(task["unit"]), Staging.of(task["staging"])
    seen = [
        (fragment, look(table, unit, fragment, offset=offset, rows=rows, everything=task["everything"]))
        for fragment, offset, rows in task["chunks"]
    ]
    digests = np.concatenate([s.digests for _, s in seen]) if seen else np.empty(0, np.uint64)
    texts = pa.concat_arrays([s.texts for _, s in seen]) if seen else pa.array([], pa.string())
    wanted, first, back = np.unique(digests, return_index=True, return_inverse=True)
    vectors, have = _known(staging, task["known"], wanted, unit.choice)
    requests = 0
    if not task["only_known"]:
        rest = np.flatnonzero(~have)
        asked = texts.take(pa.array(first[rest])).to_pylist()
        vectors[rest], requests = _asked(unit.choice, asked, interval_s=task["interval_s"])
        have[rest] = True
    parts = _staged(staging, table, unit, seen, vectors[back], have[back])
    done = sum(p["rows"] + p["cleared"] for p in parts)
    return {"parts": parts, "requests": requests, "rows_done": done, "bytes_done": texts.nbytes}


def _asked(choice: Choice, texts: Sequence[str], *, interval_s: float) -> tuple[np.ndarray, int]:
    """Ask in batches. Each request takes at least `interval_s`, which is how all tasks together keep to a rate."""
    provider: Provider | None = None
    found = np.empty((len(texts), choice.dimensions), dtype=np.float32)
    requests = 0
    for start in range(0, len(texts), choice.batch):
        began = time.monotonic()
        provider = provider or make(choice)
        batch = texts[start : start + choice.batch]
        found[start : start + len(batch)] = provider.embed(batch)
        requests += 1
        left_s = interval_s - (time.monotonic() - began)
        if left_s > 0:
            time.sleep(left_s)
    return found, requests


def _known(staging: Staging, names: Sequence[str], wanted: np.ndarray, choice: Choice) -> tuple[np.ndarray, np.ndarray]:
    """For each wanted digest its vector in these staged files, and whether there is one."""
    vectors = np.zeros((len(wanted), choice.dimensions), dtype=np.float32)
    have = np.zeros(len(wanted), dtype=bool)
    for name in names:
        part = staging.get_table(name).drop_null()
        held = pairs_of(_one(part["mark"]))[:, 1] if part.num_rows else np.empty(0, np.uint64)
        at = np.minimum(np.searchsorted(wanted, held), max(len(wanted) - 1, 0))
        hits = np.flatnonzero(wanted[at] == held) if len(wanted) else np.empty(0, np.int64)
        if len(hits):
            vectors[at[hits]] = _matrix(_one(part["vector"]), choice.dimensions)[hits]
            have[at[hits]] = True
    return vectors, have


def _matrix(vectors: pa.FixedSizeListArray, dimensions: int) -> np.ndarray:
    return np.asarray(vectors.flatten()).reshape(-1, dimensions)


def _staged(
    staging: Staging,
    table: LanceDataset,
    unit: Unit,
    seen: Sequence[tuple[int, Looked]],
    vectors: np.ndarray,
    have: np.ndarray,
) -> list[dict[str, Any]]:
    parts: dict[int, list[pa.Table]] = {}
    counts: dict[int, list[int]] = {}
    start = 0
    for fragment, one in seen:
        picked = np.arange(start, start + len(one.addresses))
        start += len(one.addresses)
        here = have[picked]
        made = _rows(unit.choice, one.addresses[here], one.digests[here], vectors[picked[here]], one.cleared)
        if made.num_rows:
            parts.setdefault(fragment, []).append(made)
            held = counts.setdefault(fragment, [0, 0])
            held[0] += int(here.sum())
            held[1] += len(one.cleared)
    return [
        {
            "fragment": fragment,
            "name": staging.put_table("vectors", pa.concat_tables(tables)),
            "rows": counts[fragment][0],
            "cleared": counts[fragment][1],
            "source_file": (base_of(table, fragment, [unit.source]) or (None,))[0],
        }
        for fragment, tables in parts.items()
    ]


def _rows(
    choice: Choice, addresses: np.ndarray, digests: np.ndarray, vectors: np.ndarray, cleared: np.ndarray
) -> pa.Table:
    kind = pa.list_(pa.float32(), choice.dimensions)
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1), pa.float32())
    filled = pa.FixedSizeListArray.from_arrays(flat, type=kind)
    empty = len(cleared)
    return pa.table(
        {
            "_rowaddr": pa.array(np.concatenate([addresses, cleared]).astype(np.uint64), pa.uint64()),
            "vector": pa.concat_arrays([filled, pa.nulls(empty, kind)]),
            "mark": pa.concat_arrays([to_marks(choice.model, digests), pa.nulls(empty, MARK_TYPE)]),
        }
    )


# ---- write -----------------------------------------------------------------------------------------------------------


def write_files(task: Mapping[str, Any]) -> dict[str, Any]:
    """Write the new columns of some fragments from their staged parts."""
    location, pin, table = _opened(task)
    unit, staging = Unit.of(task["unit"]), Staging.of(task["staging"])
    files = []
    rows = 0
    for fragment, names in task["fragments"]:
        staged = pa.concat_tables([staging.get_table(name) for name in names])
        base = base_of(table, fragment, [unit.source, unit.vector, unit.mark])
        assert base is not None
        new = staged.rename_columns(["_rowaddr", unit.vector, unit.mark])
        files.append(write_columns(location, pin, table, fragment, new, base=base).to_json())
        rows += staged.num_rows
    return {"files": files, "rows_done": rows}


def live_rows(table: LanceDataset, fragment: int, addresses: pa.ChunkedArray) -> np.ndarray:
    """Which of these rows of the fragment nobody has deleted."""
    found = table.scanner(columns=[], with_row_address=True, fragments=[table.get_fragment(fragment)]).to_table()
    return np.isin(np.asarray(addresses), np.asarray(found["_rowaddr"]))
