"""Canonical ids: one spelling per value, the same whether made one by one or for a whole table."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.language.schema.model import Constraint, NodeType, Property, PropertyType
from omnigraph.storage.lance.columns import arrow_type
from omnigraph.storage.ulids import Ulids
from omnigraph.write.keys import canonical_id, canonical_ids, texts


def keyed(*kinds: str, ids: tuple[str, ...] = ()) -> NodeType:
    names = [f"p{i}" for i in range(len(kinds))]
    given_ids = ids or ("",) * len(kinds)
    properties = tuple(Property(n, PropertyType(k), id=i) for n, k, i in zip(names, kinds, given_ids, strict=True))
    return NodeType("T", properties, (Constraint("key", tuple(names)),))


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("String", "Ann Lee", "Ann Lee"),
        ("String", "", ""),
        ("I32", -7, "-7"),
        ("U64", 2**64 - 1, "18446744073709551615"),
        ("I64", 2**53 + 1, "9007199254740993"),
        ("Bool", True, "true"),
        ("Bool", False, "false"),
        ("Date", date(1970, 1, 2), "1"),
        ("Date", date(1969, 12, 31), "-1"),
        ("DateTime", datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC), "1500"),
        ("F64", 0.1, "0.1"),
        ("F32", 0.1, "0.1"),
        ("F64", 3.0, "3"),
        ("F64", -0.0, "0"),
        ("F32", 0.0, "0"),
        ("F64", 1e21, "1000000000000000000000"),
        ("F64", 1e-7, "0.0000001"),
        ("F32", 16777216.0, "16777216"),
    ],
)
def test_a_single_key_is_its_canonical_text(kind: str, value: object, text: str) -> None:
    t = keyed(kind)
    assert canonical_id(t, {"p0": value}) == text
    assert canonical_ids(t, pa.table({"p0": pa.array([value], arrow_type(PropertyType(kind)))})).to_pylist() == [text]


def test_a_composite_key_is_a_compact_json_array_of_texts() -> None:
    t = keyed("String", "I32", "Date")
    values = {"p0": 'a "b"\\\n\x01é\x7f', "p1": 7, "p2": date(1970, 1, 2)}
    assert canonical_id(t, values) == '["a \\"b\\"\\\\\\n\\u0001é\x7f","7","1"]'


def test_a_composite_key_is_ordered_by_stable_ids_so_a_rename_changes_no_id() -> None:
    t = keyed("String", "I32", ids=("p9", "p1"))
    assert canonical_id(t, {"p0": "x", "p1": 5}) == '["5","x"]'


def test_a_key_with_a_null_member_has_no_id() -> None:
    t = keyed("String", "I32")
    table = pa.table({"p0": pa.array(["a", None]), "p1": pa.array([1, 2], pa.int32())})
    assert canonical_ids(t, table).to_pylist() == ['["a","1"]', None]


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(), st.integers(-(2**31), 2**31 - 1), st.booleans()), min_size=1))
def test_composite_ids_of_a_table_are_json_and_tell_all_tuples_apart(rows: list[tuple[str, int, bool]]) -> None:
    t = keyed("String", "I32", "Bool")
    columns = list(zip(*rows, strict=True))
    table = pa.table({p.name: pa.array(c, arrow_type(p.type)) for c, p in zip(columns, t.properties, strict=True)})
    ids = canonical_ids(t, table).to_pylist()
    for (text, number, flag), entity_id in zip(rows, ids, strict=True):
        assert json.loads(entity_id) == [text, str(number), str(flag).lower()]
        assert entity_id == canonical_id(t, {"p0": text, "p1": number, "p2": flag})
    assert len(set(ids)) == len(set(rows))


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.sampled_from([32, 64]))
def test_float_texts_give_the_stored_value_back_in_the_fewest_digits(values: list[float], width: int) -> None:
    kind = np.float32 if width == 32 else np.float64
    with np.errstate(over="ignore"):
        stored = [kind(v) for v in values if np.isfinite(kind(v))]
    spelled = texts(PropertyType(f"F{width}"), pa.array(stored, pa.float32() if width == 32 else pa.float64()))
    for value, text in zip(stored, spelled.to_pylist(), strict=True):
        assert kind(text) == value
        assert "e" not in text
        assert math.copysign(1, float(text)) == 1 or value < 0
        assert text == ("0" if value == 0 else np.format_float_positional(value, unique=True, trim="-"))


def test_fresh_ids_are_ulids_that_increase_and_do_not_repeat() -> None:
    ids = Ulids.fresh().ids(np.arange(5000)).to_pylist()
    assert ids == sorted(set(ids))
    assert all(len(i) == 26 and set(i) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for i in ids)
    assert not set(ids) & set(Ulids.fresh().ids(np.arange(5000)).to_pylist())


@settings(deadline=None)
@given(st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1), st.lists(st.integers(0, 2**38), min_size=1))
def test_a_ulid_spells_its_time_and_randomness(time_ms: int, randomness: int, numbers: list[int]) -> None:
    series = Ulids(time_ms, randomness & ~(1 << 39))
    alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    for number, text in zip(numbers, series.ids(np.array(numbers)).to_pylist(), strict=True):
        value = 0
        for character in text:
            value = value * 32 + alphabet.index(character)
        assert value == (time_ms << 80) + series.randomness + number
