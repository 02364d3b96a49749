"""Dates and datetimes: one grammar, whichever code reads it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.json as pj
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.write.temporal import MS_MAX, MS_MIN, day_of_date, day_of_text, ms_of_datetime, ms_of_text


@pytest.mark.parametrize(
    "text",
    [
        "2024-02-30",
        "2023-02-29",
        "0000-01-01",
        "2024-1-1",
        "20240101",
        "2024-01-01T00",
        " 2024-01-01",
        "2024-W01-1",
        "",
        "１９７０-01-01",
    ],
)
def test_what_is_no_date_is_refused(text: str) -> None:
    assert day_of_text(text) is None


@settings(deadline=None)
@given(st.dates())
def test_every_date_reads_back(value: date) -> None:
    assert day_of_text(value.isoformat()) == day_of_date(value)


@settings(deadline=None)
@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-11, minutes=-30)), None])))
def test_every_datetime_of_python_reads_back_to_the_millisecond(value: datetime) -> None:
    ms = ms_of_datetime(value)
    assert ms_of_text(value.isoformat()) == (ms if MS_MIN <= ms <= MS_MAX else None)


def test_a_datetime_without_offset_is_in_utc_and_finer_digits_are_cut_off() -> None:
    assert ms_of_text("1970-01-01T00:00:00.0019999") == 1
    assert ms_of_text("1969-12-31T23:59:59.9999Z") == -1
    assert ms_of_text("1970-01-01 02:00+02") == 0
    assert ms_of_text("1970-01-01") == 0


PIECES = st.tuples(
    st.sampled_from(["2024-02-29", "2023-02-29", "0001-01-01", "9999-12-31", "0000-12-31", "2024-13-01"]),
    st.sampled_from(
        ["", "T", " ", "t", "T10", "T24", "T10:30", "T10:60", "T23:59:59", "T23:59:60", " 01:02:03", "T1:2"]
    ),
    st.sampled_from(["", ".", ".1", ".12", ".123", ".1234", ".123456789", ".1234567890"]),
    st.sampled_from(["", "Z", "z", "+02", "-0230", "+23:59", "-23:59", "+24:00", "+02:60", "+2"]),
)


@settings(deadline=None)
@given(PIECES)
def test_what_arrow_reads_as_a_timestamp_we_read_alike(pieces: tuple[str, str, str, str]) -> None:
    """The fast way leaves timestamps to Arrow: whatever it accepts must be ours, unless it is outside of our years."""
    text = "".join(pieces)
    line = b'{"t":"' + text.encode() + b'"}\n'
    options = pj.ParseOptions(explicit_schema=pa.schema([("t", pa.timestamp("ms", "UTC"))]))
    try:
        read = pj.read_json(pa.BufferReader(line), parse_options=options).column("t").cast(pa.int64())[0].as_py()
    except pa.ArrowInvalid:
        return
    assert ms_of_text(text) == (read if MS_MIN <= read <= MS_MAX else None)
