"""The reject task: all refused lines of one piece, each with its reason and its own text, in the order of lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.pipeline.aside import SHAPE
from omnigraph.pipeline.bulk.context import ROW_BITS, Context, context_of
from omnigraph.pipeline.bulk.explain import Explainer, Places
from omnigraph.pipeline.bulk.index import Gone
from omnigraph.pipeline.bulk.read import LINE, text_of
from omnigraph.pipeline.bulk.told import WIDTH, Phase, in_order
from omnigraph.pipeline.export import plain
from omnigraph.storage.columns import arrow_schema

LINES_FORMATS = ("jsonl", "csv")


def reject_piece(task: Mapping[str, Any]) -> dict[str, Any]:
    """One staged table per piece, as the quarantine shows it: source, line, rule, reason, record."""
    context = context_of(task)
    about = context.staging.get_json(task["about"])
    piece = about["pieces"][task["piece"]]
    places = Places(about["pieces"], about["segments"])
    gone = Gone(context.staging, about["gone"])
    found: list[dict[str, Any]] = []
    if task["rejected"] is not None:
        rows = context.staging.get_table(task["rejected"], ["line", "rule", "reason", "record"]).to_pylist()
        found += rows
    for key, types in task["types"].items():
        found += _of_type(context, about, places, gone, task["piece"], key, types)
    _add_records(context, piece, found)
    found.sort(key=lambda one: one["line"])
    told = []
    for one in found:
        source, line = places.place(task["piece"], one["line"])
        record = one["record"].decode("utf-8", "backslashreplace")
        told.append({"source": source, "line": line, "rule": one["rule"], "reason": one["reason"], "record": record})
    table = pa.Table.from_pylist(told, SHAPE)
    counts: dict[str, int] = {}
    for one in found:
        counts[one["rule"]] = counts.get(one["rule"], 0) + 1
    name = context.staging.put_table("quarantine", table) if told else None
    return {"table": name, "by_rule": counts, "rows_done": len(told), "bytes_done": 0}


def _of_type(
    context: Context,
    about: Mapping[str, Any],
    places: Places,
    gone: Gone,
    piece: int,
    key: str,
    types: Mapping[str, Any],
) -> list[dict[str, Any]]:
    base = piece << ROW_BITS
    names = np.arange(base, base + types["rows"], dtype=np.uint64)
    phases = gone.phases(key, names)
    found: list[dict[str, Any]] = []
    if types["broken"] is not None and (phases == Phase.FIELDS).any():
        lines = context.staging.get_table(types["table"], [LINE]).column(LINE)
        seen: set[int] = set()
        for one in context.staging.get_table(types["broken"]).to_pylist():
            if phases[one["row"]] == Phase.FIELDS and one["row"] not in seen:
                seen.add(one["row"])
                found.append(
                    {
                        "line": lines[one["row"]].as_py(),
                        "rule": one["rule"],
                        "reason": one["message"],
                        "key": key,
                        "row": one["row"],
                        "table": types["table"],
                    }
                )
    told, at = _first_told(context, about, phases, context.type_index(key), piece)
    if len(told) == 0:
        return found
    explainer = Explainer(context, places, about["tables"], about["pins"])
    lines = context.staging.get_table(types["table"], [LINE]).column(LINE)
    for row, v in zip(at, explainer.violations(told), strict=True):
        line = lines[row].as_py()
        one = {"line": line, "rule": v.rule, "reason": v.message, "key": key, "row": row, "table": types["table"]}
        found.append(one)
    return found


def _first_told(
    context: Context, about: Mapping[str, Any], phases: np.ndarray, number: int, piece: int
) -> tuple[np.ndarray, list[int]]:
    """What the rows of one type of a piece went for: of each the first that was told, and its row."""
    found: list[np.ndarray] = []
    for verdict, name in about["told"]:
        told = context.staging.get_array(name, width=WIDTH)
        told = told[(told[:, 1] == number) & ((told[:, 4] >> np.uint64(ROW_BITS)) == np.uint64(piece))]
        at = (told[:, 4] & np.uint64(2**ROW_BITS - 1)).astype(np.int64)
        found.append(told[(phases[at] == verdict)])
    whole = in_order(np.concatenate(found)) if found else np.empty((0, WIDTH), dtype=np.uint64)
    # In the order of rows, and within one row as told: an edge may miss both its nodes, in two buckets.
    first = np.unique(whole[:, 4], return_index=True)[1]
    whole = whole[first]
    return whole, (whole[:, 4] & np.uint64(2**ROW_BITS - 1)).astype(np.int64).tolist()


def _add_records(context: Context, piece: Mapping[str, Any], found: list[dict[str, Any]]) -> None:
    """The text of each refused line: as it stands in the file, or the row as JSON where there are no lines."""
    open_ones = [one for one in found if "record" not in one]
    if not open_ones:
        return
    if piece["kind"] == "records" or piece["format"] in LINES_FORMATS:
        texts: list[bytes] = []
        for segment in piece["segments"]:
            texts += _header(segment) + text_of(segment).split(b"\n")[:-1]
        for one in open_ones:
            one["record"] = texts[one["line"] - 1].rstrip(b"\r")
        return
    for one in open_ones:
        t = context.type(one["key"])
        row = context.staging.get_table(one["table"], arrow_schema(t).names).slice(one["row"], 1).to_pylist()[0]
        one["record"] = orjson.dumps({k: v for k, v in row.items() if v is not None}, default=plain)


def _header(segment: Mapping[str, Any]) -> list[bytes]:
    """The header of a CSV file is a line of it, and no row."""
    return [b""] if segment.get("after_header") and segment["start"] == segment["after_header"] else []
