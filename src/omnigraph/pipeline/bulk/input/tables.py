"""Table files as Arrow, a part at a time: row groups of Parquet, batches of Arrow IPC, stripes of ORC, fragments of
Lance. CSV is read by `pipeline.csv`.

CSV has no types: every column is read as text, and each property's text is turned into its type by the rules of
`write.values`; JSON text stands for lists and vectors, base64 for blobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import FileUnreadable
from omnigraph.language.schema.model import INTEGERS, EntityType, PropertyType
from omnigraph.pipeline.load.input_files import open_input
from omnigraph.rules.problem import Problem
from omnigraph.storage.lance.columns import arrow_type
from omnigraph.write.arrays import Found, all_finite
from omnigraph.write.values import JsonNumber, convert

_DECIMAL = r"^-?[0-9]+(\.[0-9]+)?$"
_PLAIN = {"F32": _DECIMAL, "F64": _DECIMAL, "Date": r"^\d{4}-\d{2}-\d{2}$"}


# ---- formats with types ----------------------------------------------------------------------------------------------


def part_count(kind: str, path: str) -> int:
    """Into how many parts the file can be cut."""
    if kind == "lance":
        return len(_lance(path).get_fragments())
    with open_input(path) as file:
        if kind == "parquet":
            import pyarrow.parquet as pq

            return int(pq.ParquetFile(file).metadata.num_row_groups)
        if kind == "orc":
            import pyarrow.orc as orc

            return int(orc.ORCFile(file).nstripes)
        return int(_ipc(file).num_record_batches)


def table_columns(kind: str, path: str) -> list[str]:
    if kind == "lance":
        return list(_lance(path).schema.names)
    with open_input(path) as file:
        if kind == "parquet":
            import pyarrow.parquet as pq

            return list(pq.ParquetFile(file).schema_arrow.names)
        if kind == "orc":
            import pyarrow.orc as orc

            return list(orc.ORCFile(file).schema.names)
        return list(_ipc(file).schema.names)


def read_part(kind: str, segment: Mapping[str, Any], columns: Sequence[str]) -> pa.Table:
    """Some columns of one segment of a file."""
    path, parts = segment["path"], range(segment["first"], segment["last"])
    try:
        if kind == "lance":
            table = _lance(path)
            fragments = [table.get_fragments()[i] for i in parts]
            return table.scanner(columns=list(columns), fragments=fragments).to_table()
        with open_input(path) as file:
            if kind == "parquet":
                import pyarrow.parquet as pq

                reader = pq.ParquetFile(file, memory_map=True)
                return reader.read_row_groups(list(parts), columns=list(columns), use_threads=False)
            if kind == "orc":
                import pyarrow.orc as orc

                stripes = [orc.ORCFile(file).read_stripe(i, columns=list(columns)) for i in parts]
                return pa.Table.from_batches(stripes)
            batches = _ipc(file)
            return pa.Table.from_batches([batches.get_batch(i) for i in parts], batches.schema).select(list(columns))
    except (OSError, ValueError) as error:
        raise FileUnreadable(path=path, detail=str(error)) from error


def _ipc(file: Any) -> Any:
    return pa.ipc.open_file(file)


def _lance(path: str) -> Any:
    import lance

    from omnigraph.storage.layout import locate

    return lance.dataset(path, storage_options=locate(path).lance_options)


# ---- text -----------------------------------------------------------------------------------------------------------


def typed_text(t: EntityType, table: pa.Table) -> tuple[pa.Table, Found]:
    """Columns of text named as fields, with each property's text turned into its type; null where it can't be."""
    columns: dict[str, pa.Array] = {}
    problems: Found = []
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        p = t.by_name.get(name)
        if p is None or p.type.kind in ("String", "Enum"):
            columns[name] = column
            continue
        columns[name], column_problems = text_column(p.type, column)
        problems.extend((row, problem.on(name)) for row, problem in column_problems)
    return pa.table(columns), problems


def text_column(p: PropertyType, column: pa.Array) -> tuple[pa.Array, Found]:
    quick = _quick(p, column)
    if quick is not None:
        return quick, []
    values: list[object] = []
    problems: Found = []
    for row, text in enumerate(column.to_pylist()):
        value = None if text is None else _value(p, text)
        if isinstance(value, Problem):
            problems.append((row, value))
            value = None
        values.append(value)
    return pa.array(values, arrow_type(p)), problems


def _quick(p: PropertyType, column: pa.Array) -> pa.Array | None:
    """The whole column at once, where Arrow's reading of text can't differ from ours."""
    pattern = r"^-?[0-9]+$" if p.kind in INTEGERS else _PLAIN.get(p.kind)
    if pattern is None or pc.all(pc.match_substring_regex(column, pattern)).as_py() is False:
        return None
    try:
        stored = column.cast(arrow_type(p))
    except pa.ArrowInvalid:
        return None
    return stored if p.kind not in ("F32", "F64") or all_finite(stored) else None


def _value(p: PropertyType, text: str) -> object:
    """One text as a value of the property, or a Problem."""
    if p.kind in ("List", "Vector"):
        try:
            items = orjson.loads(text)
        except orjson.JSONDecodeError:
            return Problem("type", f"{text[:40]!r} is no JSON list")
        return convert(p, items, from_json=True)
    if p.kind == "Bool":
        truth = {"true": True, "false": False, "1": True, "0": False}.get(text.lower())
        return Problem("type", f"{text[:40]!r} is neither true nor false") if truth is None else truth
    if p.kind in INTEGERS or p.kind in ("F32", "F64"):
        number = _number(text)
        return Problem("type", f"{text[:40]!r} is no number") if number is None else convert(p, number)
    return convert(p, text, from_json=True)


def _number(text: str) -> object:
    try:
        float(text)
    except ValueError:
        return None
    stripped = text.strip()
    return JsonNumber(stripped) if stripped and stripped[0] in "-0123456789" else float(text)
