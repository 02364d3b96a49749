"""The tasks of embed, as they run on workers: survey, embed, write. Each turns a JSON value into a JSON value."""

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
from omnigraph.storage.lance.embedding_marks import MARK_TYPE, model_digest, pairs_of, text_digests, to_marks
from omnigraph.storage.lance.rewrites.column_files import base_of, write_columns
from omnigraph.storage.lance.tables import name_of
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.tasks.staging import Staging

if TYPE_CHECKING:
    from lance import LanceDataset

CHUNK_ROWS = 4096


@dataclass(frozen=True)
class ChunkScan:
    """Rows of a chunk: addresses, texts and digests of those to embed, addresses of those to clear; other counts."""

    addresses: np.ndarray
    texts: pa.Array
    digests: np.ndarray
    cleared: np.ndarray
    rows: int
    given: int
    blank: int
    foreign: int


def scan_chunk(
    table: LanceDataset, unit: Unit, fragment: int, *, offset: int, rows: int, everything: bool
) -> ChunkScan:
    """Which rows of a part of a fragment need a vector."""
    part_of_table: dict[str, Any] = {"fragments": [table.get_fragment(fragment)], "offset": offset, "limit": rows}
    has_marks = unit.mark in table.schema.names
    columns = [unit.source, *([unit.mark] if has_marks else [])]
    with lance_api.reading(f"reading {unit.table_key}"):
        rows_table = table.scanner(columns=columns, with_row_address=True, **part_of_table).to_table().combine_chunks()
    count = rows_table.num_rows
    texts = _array(rows_table[unit.source])
    marks = _array(rows_table[unit.mark]) if has_marks else pa.nulls(count, MARK_TYPE)
    blank = np.asarray(pc.fill_null(pc.equal(pc.utf8_trim_whitespace(texts), ""), True))
    has_mark = np.asarray(marks.is_valid())
    pairs = pairs_of(marks)
    stale = has_mark & ~pairs.any(axis=1)
    has_our_model = has_mark & ~stale & (pairs[:, 0] == np.frombuffer(model_digest(unit.choice.model), dtype="<u8")[0])
    foreign = has_mark & ~stale & ~has_our_model
    missing = np.zeros(count, dtype=bool)
    if not everything and (~has_mark & ~blank).any():
        with lance_api.reading(f"reading {unit.table_key}"):
            vectors = table.scanner(columns={"missing": f"{name_of(unit.vector)} IS NULL"}, **part_of_table).to_table()
        missing = ~has_mark & np.asarray(_array(vectors["missing"]))
    digests = np.zeros(count, dtype=np.uint64)
    digested = np.flatnonzero(~blank & (has_mark | missing | everything))
    digests[digested] = text_digests(texts.take(pa.array(digested)).to_pylist())
    need = ~blank & (stale | foreign | missing | (has_our_model & (digests != pairs[:, 1])) | everything)
    clear = blank & has_mark & unit.nullable
    addresses = np.asarray(_array(rows_table["_rowaddr"]))
    return ChunkScan(
        addresses=addresses[need],
        texts=texts.filter(pa.array(need)),
        digests=digests[need],
        cleared=addresses[clear],
        rows=count,
        given=int((~blank & ~has_mark & ~need).sum()),
        blank=int((blank & ~clear).sum()),
        foreign=int(foreign.sum()),
    )


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _opened(task: Mapping[str, Any]) -> tuple[Location, Pin, LanceDataset]:
    location = Location(task["uri"], task["local"], task["options"])
    pin = Pin.from_json(task["table"], task["pin"])
    return location, pin, lance_api.open_table(location, location.join(pin.path), version=pin.version)


def table_address(location: Location, pin: Pin) -> dict[str, Any]:
    """What a task needs to open a table."""
    return {
        "uri": location.uri,
        "local": location.is_local,
        "options": dict(location.options),
        "table": pin.table,
        "pin": pin.to_json(),
    }


# ---- survey ----------------------------------------------------------------------------------------------------------


def survey(task: Mapping[str, Any]) -> dict[str, Any]:
    """Count the rows to embed and to clear in some fragments, per chunk; chunks without any are left out."""
    _, _, table = _opened(task)
    unit = Unit.of(task["unit"])
    chunks: list[list[int]] = []
    totals = dict.fromkeys(("given", "blank", "foreign", "rows_done"), 0)
    for fragment in task["fragments"]:
        live = table.get_fragment(fragment).count_rows()
        for offset in range(0, live, task["chunk_rows"]):
            size = min(task["chunk_rows"], live - offset)
            scan = scan_chunk(table, unit, fragment, offset=offset, rows=size, everything=task["everything"])
            if len(scan.addresses) or len(scan.cleared):
                counts = (len(scan.addresses), len(scan.cleared), scan.texts.nbytes)
                chunks.append([fragment, offset, size, *counts])
            for name in ("given", "blank", "foreign"):
                totals[name] += getattr(scan, name)
            totals["rows_done"] += scan.rows
    return {"chunks": chunks, **totals}


# ---- embed -----------------------------------------------------------------------------------------------------------


def embed_chunks(task: Mapping[str, Any]) -> dict[str, Any]:
    """Get the vectors of some chunks and stage them: one file per fragment, with addresses, vectors and marks.

    `known` names staged files whose vectors are used first; with `only_known` no request is made, and rows without a
    staged vector are left out.
    """
    _, _, table = _opened(task)
    unit, staging = Unit.of(task["unit"]), Staging.of(task["staging"])
    scans = [
        (fragment, scan_chunk(table, unit, fragment, offset=offset, rows=rows, everything=task["everything"]))
        for fragment, offset, rows in task["chunks"]
    ]
    digests = np.concatenate([s.digests for _, s in scans]) if scans else np.empty(0, np.uint64)
    texts = pa.concat_arrays([s.texts for _, s in scans]) if scans else pa.array([], pa.string())
    unique_digests, first, inverse = np.unique(digests, return_index=True, return_inverse=True)
    vectors, has_vector = _staged_vectors(staging, task["known"], unique_digests, unit.choice)
    requests = 0
    if not task["only_known"]:
        missing = np.flatnonzero(~has_vector)
        missing_texts = texts.take(pa.array(first[missing])).to_pylist()
        vectors[missing], requests = _embed_texts(unit.choice, missing_texts, interval_s=task["interval_s"])
        has_vector[missing] = True
    parts = _staged(staging, table, unit, scans, vectors[inverse], has_vector[inverse])
    finished_rows = sum(p["rows"] + p["cleared"] for p in parts)
    return {"parts": parts, "requests": requests, "rows_done": finished_rows, "bytes_done": texts.nbytes}


def _embed_texts(choice: Choice, texts: Sequence[str], *, interval_s: float) -> tuple[np.ndarray, int]:
    """Request vectors in batches. Each request takes at least `interval_s`, which limits the rate of all tasks."""
    provider: Provider | None = None
    vectors = np.empty((len(texts), choice.dimensions), dtype=np.float32)
    requests = 0
    for start in range(0, len(texts), choice.batch):
        began = time.monotonic()
        provider = provider or make(choice)
        batch = texts[start : start + choice.batch]
        vectors[start : start + len(batch)] = provider.embed(batch)
        requests += 1
        remaining_s = interval_s - (time.monotonic() - began)
        if remaining_s > 0:
            time.sleep(remaining_s)
    return vectors, requests


def _staged_vectors(
    staging: Staging, names: Sequence[str], unique_digests: np.ndarray, choice: Choice
) -> tuple[np.ndarray, np.ndarray]:
    """For each digest its vector in these staged files, and whether there is one."""
    vectors = np.zeros((len(unique_digests), choice.dimensions), dtype=np.float32)
    has_vector = np.zeros(len(unique_digests), dtype=bool)
    for name in names:
        part = staging.get_table(name).drop_null()
        digests = pairs_of(_array(part["mark"]))[:, 1] if part.num_rows else np.empty(0, np.uint64)
        positions = np.minimum(np.searchsorted(unique_digests, digests), max(len(unique_digests) - 1, 0))
        hits = np.flatnonzero(unique_digests[positions] == digests) if len(unique_digests) else np.empty(0, np.int64)
        if len(hits):
            vectors[positions[hits]] = _matrix(_array(part["vector"]), choice.dimensions)[hits]
            has_vector[positions[hits]] = True
    return vectors, has_vector


def _matrix(vectors: pa.FixedSizeListArray, dimensions: int) -> np.ndarray:
    return np.asarray(vectors.flatten()).reshape(-1, dimensions)


def _staged(
    staging: Staging,
    table: LanceDataset,
    unit: Unit,
    scans: Sequence[tuple[int, ChunkScan]],
    vectors: np.ndarray,
    has_vector: np.ndarray,
) -> list[dict[str, Any]]:
    parts: dict[int, list[pa.Table]] = {}
    counts: dict[int, list[int]] = {}
    start = 0
    for fragment, scan in scans:
        indices = np.arange(start, start + len(scan.addresses))
        start += len(scan.addresses)
        is_ready = has_vector[indices]
        rows = _rows(
            unit.choice, scan.addresses[is_ready], scan.digests[is_ready], vectors[indices[is_ready]], scan.cleared
        )
        if rows.num_rows:
            parts.setdefault(fragment, []).append(rows)
            fragment_counts = counts.setdefault(fragment, [0, 0])
            fragment_counts[0] += int(is_ready.sum())
            fragment_counts[1] += len(scan.cleared)
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
    """Which of these rows of the fragment are not deleted."""
    live = table.scanner(columns=[], with_row_address=True, fragments=[table.get_fragment(fragment)]).to_table()
    return np.isin(np.asarray(addresses), np.asarray(live["_rowaddr"]))
