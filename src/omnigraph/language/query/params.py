"""Values for the parameters of a query: from the values of a caller to those of the executor.

| declared    | accepted                                                    | becomes                      |
|-------------|-------------------------------------------------------------|------------------------------|
| String      | text                                                        | str                          |
| Bool        | true, false                                                 | bool                         |
| I32 … U64   | a whole number in range; never a boolean, never text        | int                          |
| F32, F64    | a finite number; never a boolean                            | float                        |
| Date        | `"2024-02-29"`, a date                                      | date                         |
| DateTime    | `"2024-02-29T12:30:00Z"`, a datetime (in UTC unless it has  | datetime, UTC, milliseconds  |
|             | a zone); a date, which is its midnight                      |                              |
| Blob        | bytes; text is base64, with or without `base64:` in front   | bytes                        |
| [T]         | a list of those, without null                               | tuple                        |
| Vector(n)   | a list of n finite numbers                                  | tuple of floats              |

Numpy scalars and arrays are accepted as the values that they hold. Nothing is rounded or guessed: a Decimal is not
accepted as a number, and a datetime not as a Date.

Values are never parsed as a part of the query. A parameter with `?` may be null or omitted.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from omnigraph.errors import ParameterError
from omnigraph.language.query.check.ranking import EDITS_MAX
from omnigraph.language.query.model import CheckedQuery, Read
from omnigraph.language.query.syntax.literals import F32_MAX, INTEGER_LIMITS, date_of, datetime_of, whole_ms
from omnigraph.language.query.terms import Fused, Parameter, Search, Value
from omnigraph.language.query.types import Type, counted
from omnigraph.language.regex import pattern_problem
from omnigraph.language.schema.source import did_you_mean

SHOWN_CHARS_MAX = 60
COUNT_MAX = 2**63 - 1


Problem = dict[str, str | None]
"""`parameter`, `detail`; `declared`, its type in the query, null if it has none; `given`, the type of the value."""


class Misfit(ValueError):
    """Raised and caught within this module: the end of a sentence that starts with the parameter's name."""


def bind_params(checked: CheckedQuery, given: Mapping[str, Any]) -> Mapping[str, Value]:
    """A value for every declared parameter; ParameterError with everything that is wrong."""
    problems: list[Problem] = []
    bound: dict[str, Value] = {}
    declared = {p.name: p for p in checked.parameters}
    for name in given:
        if name not in declared:
            hint = did_you_mean(str(name), declared).replace(" Did you mean ", " Did you mean $")
            detail = f"is not declared.{hint}"
            problems.append(_problem(str(name), detail, None, type_name(given[name])))
    for name, p in declared.items():
        value = given.get(name)
        try:
            bound[name] = _value(p, name in given, value)
        except Misfit as misfit:
            given_type = type_name(value) if name in given else None
            problems.append(_problem(name, f"{misfit}.", p, given_type))
    if not problems:
        problems = [_problem(n, detail, declared[n], type_name(given.get(n))) for n, detail in _uses(checked, bound)]
    if problems:
        shown = " ".join(f"${p['parameter']} {p['detail']}" for p in problems[:5])
        raise ParameterError(query=checked.name, problems=problems, shown=shown)
    return bound


def _problem(name: str, detail: str, declared: Parameter | None, given: str | None) -> Problem:
    shown = None if declared is None else str(declared.type)
    return {"parameter": name, "detail": detail, "declared": shown, "given": given}


def type_name(value: Any) -> str:
    """The qualified Python type of a value: `str`, `decimal.Decimal`, `numpy.ndarray`; `null` for None."""
    if value is None:
        return "null"
    t = type(value)
    return t.__qualname__ if t.__module__ == "builtins" else f"{t.__module__}.{t.__qualname__}"


def _value(p: Parameter, is_given: bool, value: Any) -> Value:
    if value is None:
        if not p.type.nullable:
            raise Misfit(f"is {p.type} and has no value" if not is_given else f"is {p.type} and can't be null")
        return None
    return coerce(p.type, value)


def coerce(t: Type, value: Any) -> Value:
    """The value as one of that type; Misfit, with the reason, if it is none."""
    if t.kind == "List":
        return tuple(_item(Type(t.item or "String"), i, v) for i, v in enumerate(_sequence(t, value)))
    if t.kind == "Vector":
        numbers = _sequence(t, value)
        if len(numbers) != t.dimension:
            raise Misfit(f"is {t.null(False)} and got {counted(len(numbers), 'number')}")
        return tuple(_item(Type("F32"), i, v) for i, v in enumerate(numbers))
    return _scalar(t.kind, value)


def _sequence(t: Type, value: Any) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    if hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1:
        return list(value) if value.dtype.kind in "Mm" else list(value.tolist())
    raise Misfit(f"is a list {t.null(False)}, not {_shown(value)}")


def _item(t: Type, position: int, value: Any) -> Value:
    if value is None:
        raise Misfit(f"holds null at position {position}")
    try:
        return _scalar(t.kind, value)
    except Misfit as misfit:
        raise Misfit(f"at position {position} {misfit}") from None


def _scalar(kind: str, value: Any) -> Value:
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = _unboxed(kind, value)
    if kind == "String" and isinstance(value, str):
        return _text(value)
    if kind == "Bool" and isinstance(value, bool):
        return value
    if kind in INTEGER_LIMITS and isinstance(value, int) and not isinstance(value, bool):
        low, high = INTEGER_LIMITS[kind]
        if low <= value <= high:
            return value
        raise Misfit(f"is {kind}, from {low} to {high}, not {_shown(value)}")
    if kind in ("F32", "F64") and isinstance(value, int | float) and not isinstance(value, bool):
        return _float(kind, value)
    if kind == "Date":
        return _date(value)
    if kind == "DateTime":
        return _datetime(value)
    if kind == "Blob":
        return _blob(value)
    raise Misfit(f"is {kind}, not {_shown(value)}")


def _unboxed(kind: str, value: Any) -> Any:
    """A numpy scalar as a Python value. A time that numpy converts to an int stays as it is, so that it is refused."""
    if getattr(value.dtype, "kind", "") not in "Mm":
        return value.item()
    if kind == "DateTime" and value.dtype.kind == "M":
        return value.astype("datetime64[us]").item()
    exact = value.item()
    return value if isinstance(exact, int) else exact


def _text(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Misfit("holds half of a surrogate pair, which is not text") from None
    return value


def _float(kind: str, value: int | float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or (kind == "F32" and abs(number) > F32_MAX):
        raise Misfit(f"is {kind}, a finite number in its range, not {_shown(value)}")
    return number


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    parsed = date_of(value) if isinstance(value, str) else None
    if parsed is None:
        raise Misfit(f'is a Date, as in "2024-02-29", not {_shown(value)}')
    return parsed


def _datetime(value: Any) -> datetime:
    parsed = None
    if isinstance(value, str):
        parsed = datetime_of(value)
    elif isinstance(value, datetime):
        parsed = _moment(value)
    elif isinstance(value, date):
        parsed = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if parsed is None:
        raise Misfit(f'is a DateTime, as in "2024-02-29T12:30:00Z", not {_shown(value)}')
    return parsed


def _moment(value: datetime) -> datetime | None:
    """None outside of the years 1 to 9999, and for NaT of pandas, which is an instance of datetime."""
    try:
        return whole_ms(value) if value == value else None
    except OverflowError:
        return None


def _blob(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        try:
            return binascii.a2b_base64(value.removeprefix("base64:"), strict_mode=True)
        except (binascii.Error, ValueError):
            pass
    raise Misfit(f"is a Blob, bytes or base64 text, not {_shown(value)}")


def _shown(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**40:
        return "that number"
    text = repr(value) if isinstance(value, str | int | float) or value is None else f"a {type(value).__name__}"
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"


# ---- values with restrictions by their use ---------------------------------------------------------------------------


def _uses(checked: CheckedQuery, bound: Mapping[str, Value]) -> list[tuple[str, str]]:
    """Problems of parameters in restricted places: negative limits, patterns that do not compile, edits and k out of
    range.
    """
    problems: dict[str, str] = {}

    def check(expression: object, problem_text: str, is_right: Any) -> None:
        if isinstance(expression, Parameter) and not is_right(bound[expression.name]):
            problems.setdefault(expression.name, problem_text)

    if isinstance(checked.body, Read):
        for what, count in (("limit", checked.body.limit), ("offset", checked.body.offset)):
            check(count, f"is a {what}, a whole number from 0.", lambda v: v is not None and 0 <= v <= COUNT_MAX)
    for term in checked.bounded:
        if isinstance(term, Fused):
            check(term.k, "is k of rrf, a whole number above 0.", lambda v: v is not None and v > 0)
        elif isinstance(term, Search) and term.edits is not None:
            problem_text = f"is the number of edits of fuzzy, 0 to {EDITS_MAX}."
            check(term.edits, problem_text, lambda v: v is not None and 0 <= v <= EDITS_MAX)
        elif not isinstance(term, Search) and term.operator == "matches" and isinstance(term.pattern, Parameter):
            text = bound[term.pattern.name]
            problem = None if text is None else pattern_problem(str(text))
            if problem is not None:
                problems.setdefault(term.pattern.name, f"can't be used by matches. {problem}")
    return list(problems.items())
