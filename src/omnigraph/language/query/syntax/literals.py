"""Literals of the language: strings with escapes, numbers, dates; and their values.

A Date is `YYYY-MM-DD`. A DateTime is `YYYY-MM-DD`, optionally followed by `T` or a space and `hh[:mm[:ss[.f…]]]` and by
`Z`, `±hh`, `±hhmm` or `±hh:mm`; without an offset it is in UTC. Both are within the years 1 to 9999 and truncated to
milliseconds. The same texts are accepted in literals, in parameters and in input files.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal

from omnigraph.language.schema.syntax.declarations import ESCAPES
from omnigraph.language.schema.syntax.literals import F32_MAX as F32_MAX
from omnigraph.language.schema.syntax.literals import INTEGER_LIMITS as INTEGER_LIMITS

INTEGER_MAX = 2**64 - 1
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATETIME = re.compile(
    _DATE.pattern + r"(?:[T ](?:[01][0-9]|2[0-3])(?::[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?)?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)?)?"
)
_UNESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class BadLiteral(ValueError):
    """Raised and caught within this package. `offset` counts characters from the start of the token."""

    def __init__(self, detail: str, offset: int = 0) -> None:
        super().__init__(detail)
        self.offset = offset


def decode_string(token: str) -> str:
    """The text of a string token with its quotes."""
    if "\\" not in token:
        return token[1:-1]

    def decode(match: re.Match[str]) -> str:
        code = match.group(1)
        if code in ESCAPES:
            return ESCAPES[code]
        point = int(code[1:], 16) if len(code) == 5 else 0
        if point and not 0xD800 <= point <= 0xDFFF:
            return chr(point)
        if len(code) == 5:
            raise BadLiteral(f"\\{code} is not a character that text may hold.", 1 + match.start())
        known = r"\" \\ \n \r \t and \uXXXX"
        detail = f"There is no escape \\{code}; strings know {known}. A backslash itself is \\\\."
        raise BadLiteral(detail, 1 + match.start())

    return _ESCAPE.sub(decode, token[1:-1])


def decode_number(token: str) -> int | float:
    if token.isdigit():
        # 20 digits hold every 64-bit integer; int() refuses thousands of digits with an error of its own.
        if len(token.lstrip("0")) > 20 or int(token) > INTEGER_MAX:
            raise BadLiteral(f"{token} does not fit into 64 bits.")
        return int(token)
    number = float(token)
    if number == float("inf"):
        raise BadLiteral(f"{token} is too large for a number.")
    return number


def show_literal(value: str | int | float | bool | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = format(Decimal(repr(value)), "f") if 1e-7 < abs(value) < 1e17 or value == 0 else repr(value)
        return text if "." in text or "e" in text else f"{text}.0"
    plain = (c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in value)
    return '"' + "".join(_UNESCAPED.get(c) or p for c, p in zip(value, plain, strict=True)) + '"'


def date_of(text: str) -> date | None:
    """The date of a text; None if it is no date."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def datetime_of(text: str) -> datetime | None:
    """The datetime of a text, in UTC, in milliseconds; None if it is no datetime or outside of the years 1 to 9999."""
    if not _DATETIME.fullmatch(text):
        return None
    try:
        return whole_ms(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def whole_ms(value: datetime) -> datetime:
    """The datetime in UTC, truncated to milliseconds. OverflowError outside of the years 1 to 9999."""
    aware = value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return aware.replace(microsecond=aware.microsecond // 1000 * 1000)
