"""Filters in Lance's SQL: names and literals that mean exactly what the caller meant, and texts that a caller wrote.

A literal exists only where Lance compares it as the value it stands for. There is none for a null, for bytes, lists and
vectors, for numbers outside of the column's range, and for zero as a float, which has two forms.

In a text, names of columns stand for columns whatever their case and whatever SQL thinks of the word: they are quoted
here. Words that the grammar of filters itself needs (`and`, `in`, `null`, …) are columns only between backticks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, timedelta

import numpy as np

from omnigraph.errors import InvalidFilter, UsageError
from omnigraph.language.schema.model import EntityType
from omnigraph.storage.lance.tables import name_of
from omnigraph.storage.manifest.table import quote

_BOUNDS = {
    "I32": (-(2**31), 2**31 - 1),
    # The smallest I64 has no literal: Lance reads its digits as a float.
    "I64": (-(2**63) + 1, 2**63 - 1),
    "U32": (0, 2**32 - 1),
    "U64": (0, 2**64 - 1),
}
_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^']|'')*')|(?P<quoted>`[^`]*`|"[^"]*")"""
    r"""|(?P<word>[^\W\d]\w*)|(?P<rest>.)""",
    re.DOTALL,
)
_GRAMMAR = (
    *("and", "or", "not", "in", "is", "null", "like", "ilike", "escape", "between", "true", "false", "as", "distinct"),
    *("case", "when", "then", "else", "end"),
)
_BEFORE_TEXT = ("date", "timestamp", "time", "interval")


def kind_of(t: EntityType, column: str) -> str:
    """The kind of a column's values; ids and endpoints are strings."""
    p = t.by_name.get(column)
    return "String" if p is None else p.type.kind


def literal(kind: str, value: object) -> str | None:
    """A stored value as a literal that compares exactly; None if it has none."""
    if kind in ("String", "Enum"):
        return quote(value) if isinstance(value, str) else None
    if kind == "Bool":
        return str(value).lower() if isinstance(value, bool) else None
    if kind in _BOUNDS:
        low, high = _BOUNDS[kind]
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return str(value) if is_whole and low <= value <= high else None  # type: ignore[operator]
    if kind in ("F32", "F64"):
        return _float(kind, value)
    if kind == "Date":
        return f"date '{value.isoformat()}'" if isinstance(value, date) and not isinstance(value, datetime) else None
    if kind == "DateTime":
        return _moment(value)
    return None


def _float(kind: str, value: object) -> str | None:
    if not isinstance(value, float) or not math.isfinite(value) or value == 0:
        return None
    if kind == "F32":
        with np.errstate(over="ignore"):
            if float(np.float32(value)) != value:
                return None
    return repr(value)


def _moment(value: object) -> str | None:
    # A finer moment than the stored milliseconds would be cut to one that the caller did not mean.
    if not isinstance(value, datetime) or value.tzinfo is None or value.microsecond % 1000:
        return None
    ms = (value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    return f"to_timestamp_millis({ms})"


def equality(t: EntityType, values: Mapping[str, object]) -> str:
    """The filter for rows that hold all these values, given as they are stored; None asks for null."""
    return " AND ".join(_equals(t, column, value) for column, value in values.items())


def _equals(t: EntityType, column: str, value: object) -> str:
    name = name_of(column)
    if value is None:
        return f"{name} IS NULL"
    kind = kind_of(t, column)
    if kind in ("F32", "F64") and value == 0:
        return f"({name} = 0.0 OR {name} = -0.0)"
    if kind == "I64" and value == -(2**63):
        return f"{name} < {-(2**63) + 1}"
    value_literal = literal(kind, value)
    if value_literal is None:
        raise UsageError(detail=f"{t.key} can't be filtered by the value of {column!r}, which is {_a(kind)}.")
    return f"{name} = {value_literal}"


def _a(kind: str) -> str:
    return f"a {kind}" if kind != "List" else "a list"


def quoted(text: str, columns: Collection[str], *, table_key: str = "the table") -> str:
    """A filter that a caller wrote, with the names of columns quoted, closed in itself; InvalidFilter if it is not."""
    why = _why_not_closed(text)
    if why:
        raise InvalidFilter(filter=text, table_key=table_key, detail=why)
    tokens: list[str] = []
    before = ""
    for match in _TOKEN.finditer(text):
        token = match.group()
        if match.lastgroup == "word":
            is_name = token in columns and _is_name(token, before, text[match.end() :].lstrip())
            tokens.append(name_of(token) if is_name else token)
        else:
            tokens.append(token)
        if not token.isspace():
            before = token.lower()
    # In parentheses, because Lance ignores whatever follows a complete expression.
    return f"({''.join(tokens)}\n)"


def _why_not_closed(text: str) -> str:
    """Why a text would end the parentheses around it, or go on behind them; empty if it does not."""
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if match.lastgroup != "rest":
            continue
        depth += (token == "(") - (token == ")")
        if depth < 0:
            return "a closing parenthesis has no opening one."
        if token in ("'", "`", '"'):
            return f"a quote {token} is not closed."
        if token == ";":
            return "it is one condition, without a `;`."
    return "an opening parenthesis is not closed." if depth else ""


def _is_name(word: str, before: str, after: str) -> bool:
    lower = word.lower()
    if lower in _GRAMMAR or before in (".", "as") or (before == "distinct" and lower == "from"):
        return False
    if after.startswith("("):
        return False
    return not (lower in _BEFORE_TEXT and after.startswith("'"))
