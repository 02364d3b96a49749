"""Whether the literal of `@default(…)` fits its property.

`fit` returns the value as the model stores it: an integer on a float property becomes a float, everything else stays as
written; dates stay text (`YYYY-MM-DD`, `YYYY-MM-DDTHH:MM:SS[.fff][Z|±HH:MM]`, no zone meaning UTC).
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

from omnigraph.language.schema.model import INTEGERS, Literal_, PropertyType
from omnigraph.language.schema.syntax.declarations import Argument

INTEGER_LIMITS = {
    "I32": (-(2**31), 2**31 - 1),
    "I64": (-(2**63), 2**63 - 1),
    "U32": (0, 2**32 - 1),
    "U64": (0, 2**64 - 1),
}
F32_MAX = 3.4028234663852886e38
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(_DATE.pattern + r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?")


class Misfit(ValueError):
    """Raised and caught within this package: the caller knows the place and raises the typed error."""


def fit(type_: PropertyType, argument: Argument) -> Literal_:
    """The value to store; Misfit with the end of a sentence (`… must be …`) if it is not of that type."""
    kind, value = type_.kind, argument.value
    if kind == "String":
        return _need(argument.form == "string", "a string in quotes", value)
    if kind == "Enum":
        word = str(value).lower() if argument.form == "bool" else value
        quotes = ", in quotes" if argument.form == "number" else ""
        return _need(word in type_.values, f"one of {', '.join(type_.values)}{quotes}", word)
    if kind == "Bool":
        return _need(argument.form == "bool", "true or false", value)
    if kind in INTEGERS:
        low, high = INTEGER_LIMITS[kind]
        fits = argument.form == "number" and isinstance(value, int) and low <= value <= high
        return _need(fits, f"a whole number from {low} to {high}", value)
    if kind in ("F32", "F64"):
        return _float(kind, argument)
    if kind == "Date":
        fits = argument.form == "string" and _is_date(str(value))
        return _need(fits, 'a date in quotes, as in "2024-02-29"', value)
    assert kind == "DateTime", kind
    fits = argument.form == "string" and _is_datetime(str(value))
    return _need(fits, 'a time in quotes, as in "2024-02-29T12:30:00Z"', value)


def _need(fits: bool, requirement: str, value: Literal_) -> Literal_:
    if not fits:
        raise Misfit(requirement)
    return value


def _float(kind: str, argument: Argument) -> float:
    if argument.form != "number":
        raise Misfit("a number")
    number = float(argument.value)
    if kind == "F32" and abs(number) > F32_MAX:
        raise Misfit("a number that fits into 32 bits")
    return number


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    if _DATE.fullmatch(text):
        return _is_date(text)
    if not _TIME.fullmatch(text):
        return False
    try:
        parsed = datetime.fromisoformat(text)
        if parsed.tzinfo is not None:
            parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        return False
    return True
