"""Dates and datetimes: from ISO 8601 text and Python values to what is stored.

A Date is stored as the day since 1970-01-01, a DateTime as the millisecond since 1970-01-01T00:00:00Z. Both lie in the
years 1 to 9999, so that every stored value can be written as text again.

A Date is written `YYYY-MM-DD`, and only so: never as a number. A DateTime is `YYYY-MM-DD`, optionally followed by `T`
or a space and `hh[:mm[:ss[.f…]]]` (one to nine digits of a fraction) and by `Z`, `±hh`, `±hhmm` or `±hh:mm`. Without an
offset it is in UTC; what is finer than a millisecond is cut off.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
DAY_MS = 86_400_000
DAY_MIN = date.min.toordinal() - EPOCH_ORDINAL
DAY_MAX = date.max.toordinal() - EPOCH_ORDINAL
MS_MIN = DAY_MIN * DAY_MS
MS_MAX = (DAY_MAX + 1) * DAY_MS - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(
    r"[T ]([01][0-9]|2[0-3])(?::([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,9}))?)?)?"
    r"(?:Z|([+-])([01][0-9]|2[0-3])(?::?([0-5][0-9]))?)?"
)


def day_of_date(value: date) -> int:
    return value.toordinal() - EPOCH_ORDINAL


def day_of_text(text: str) -> int | None:
    """None where the text is no date."""
    found = _DATE.fullmatch(text)
    day = None if found is None else _day(found)
    return day if day is not None and day >= DAY_MIN else None


def ms_of_datetime(value: datetime) -> int:
    """Without a time zone the value is in UTC. The result may lie outside of MS_MIN to MS_MAX by a zone's offset."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def ms_of_text(text: str) -> int | None:
    """None where the text is no datetime, or one outside of the years 1 to 9999."""
    dated = _DATE.match(text)
    day = None if dated is None else _day(dated)
    if dated is None or day is None:
        return None
    if len(text) == dated.end():
        return day * DAY_MS if day >= DAY_MIN else None
    timed = _TIME.fullmatch(text, dated.end())
    if timed is None:
        return None
    hour, minute, second, fraction, sign, offset_hour, offset_minute = timed.groups()
    ms = day * DAY_MS + int(hour) * 3_600_000 + int(minute or 0) * 60_000 + int(second or 0) * 1_000
    ms += int((fraction or "0").ljust(3, "0")[:3])
    if sign is not None:
        offset_ms = int(offset_hour) * 3_600_000 + int(offset_minute or 0) * 60_000
        ms += offset_ms if sign == "-" else -offset_ms
    return ms if MS_MIN <= ms <= MS_MAX else None


def _day(found: re.Match[str]) -> int | None:
    """Also of the year 0, in which a moment of year 1 may be written with an offset; the calendar repeats itself."""
    year, month, day = (int(part) for part in found.groups())
    cycle_years, cycle_days = (400, 146_097) if year == 0 else (0, 0)
    try:
        return date(year + cycle_years, month, day).toordinal() - cycle_days - EPOCH_ORDINAL
    except ValueError:
        return None
