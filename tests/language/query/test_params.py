"""Parameters: what is given becomes what is declared, or is refused with everything that is wrong."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from omnigraph.errors import ParameterError
from omnigraph.language.query import bind_params, exact
from tests.language.query.texts import checked, read_text


def bind(declared: str, given: dict[str, Any], clause: str = "", rest: str = "return { $p.name }") -> Any:
    return bind_params(checked(read_text(f"$p: Person {clause}", rest, declared)), given)


@pytest.mark.parametrize(
    ("type_", "given", "expected"),
    [
        ("String", 'a\'; DROP TABLE "x" -- \\ \u0001 $p', 'a\'; DROP TABLE "x" -- \\ \u0001 $p'),
        ("Bool", True, True),
        ("I32", -(2**31), -(2**31)),
        ("U64", 2**64 - 1, 2**64 - 1),
        ("F64", 1, 1.0),
        ("F32", 0.1, 0.1),
        ("Date", "2024-02-29", date(2024, 2, 29)),
        ("Date", date(2024, 2, 29), date(2024, 2, 29)),
        ("DateTime", "2024-02-29", datetime(2024, 2, 29, tzinfo=UTC)),
        ("DateTime", "2024-02-29 10:30:00.123456789+0130", datetime(2024, 2, 29, 9, 0, 0, 123000, tzinfo=UTC)),
        ("DateTime", datetime(2024, 2, 29, 1, 2, 3, 4567), datetime(2024, 2, 29, 1, 2, 3, 4000, tzinfo=UTC)),
        ("Blob", "base64:AAE=", b"\x00\x01"),
        ("Blob", b"\x00", b"\x00"),
        ("[I64]", [1, 2], (1, 2)),
        ("[String]", [], ()),
        ("[Date]", ["2024-01-01"], (date(2024, 1, 1),)),
        ("Vector(2)", [1, 2.5], (1.0, 2.5)),
        ("DateTime", date(2024, 2, 29), datetime(2024, 2, 29, tzinfo=UTC)),
        (
            "DateTime",
            datetime(2024, 2, 29, 1, tzinfo=timezone(timedelta(hours=2))),
            datetime(2024, 2, 28, 23, tzinfo=UTC),
        ),
        (
            "DateTime",
            np.datetime64("2024-02-29T01:02:03.004567891", "ns"),
            datetime(2024, 2, 29, 1, 2, 3, 4000, tzinfo=UTC),
        ),
        ("Date", np.datetime64("2024-02-29"), date(2024, 2, 29)),
        ("[Date]", np.array(["2024-02-29"], "datetime64[D]"), (date(2024, 2, 29),)),
        ("[DateTime]", np.array(["2024-02-29"], "datetime64[ns]"), (datetime(2024, 2, 29, tzinfo=UTC),)),
        ("I64", np.int32(7), 7),
        ("F64", np.float32(0.5), 0.5),
        ("Bool", np.bool_(True), True),
        ("String", np.str_("a"), "a"),
        ("[I64]", (1, 2), (1, 2)),
        ("[I64]", np.arange(2), (0, 1)),
        ("Vector(2)", np.array([1, 2.5], np.float32), (1.0, 2.5)),
        ("Blob", bytearray(b"a"), b"a"),
    ],
)
def test_a_value_of_the_declared_type(type_: str, given: Any, expected: Any) -> None:
    value = bind(f"$x: {type_}", {"x": given})["x"]
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("type_", "given"),
    [
        ("String", 1),
        ("String", "\ud800"),
        ("Bool", 1),
        ("Bool", "true"),
        ("I32", True),
        ("I32", 1.0),
        ("I32", "1"),
        ("I32", 2**31),
        ("U32", -1),
        pytest.param("I64", 10**5000, id="huge"),
        ("F64", True),
        ("F64", float("nan")),
        ("F64", 10**400),
        ("F32", 1e39),
        ("F64", "1"),
        ("Date", "2024-02-30"),
        ("Date", "2024-02-29T00:00:00Z"),
        ("Date", 19782),
        ("Date", datetime(2024, 1, 1)),
        ("DateTime", "yesterday"),
        ("DateTime", 0),
        ("DateTime", "0001-01-01T00:00:00+01:00"),
        ("Blob", "%%%"),
        ("[I64]", "12"),
        ("[I64]", [1, None]),
        ("[I64]", [1, "2"]),
        ("[I64]", {"a": 1}),
        ("Vector(2)", [1]),
        ("Vector(2)", [1, "a"]),
        ("Vector(2)", [1, float("inf")]),
        ("String", None),
        ("F64", Decimal("1.5")),
        ("I64", Decimal(1)),
        ("I64", Fraction(1)),
        ("I64", np.float64(1)),
        ("I64", np.datetime64("2024-02-29", "ns")),
        ("I64", np.timedelta64(1, "ns")),
        ("[I64]", np.array(["2024-02-29"], "datetime64[ns]")),
        ("[I64]", np.zeros((1, 1), int)),
        ("DateTime", np.datetime64("NaT")),
        ("Date", time(1, 2)),
        ("Date", np.datetime64("2024-02-29T01:00")),
        ("String", b"a"),
        ("String", UUID(int=0)),
        ("Vector(2)", np.array([1, np.nan], np.float32)),
        ("Vector(2)", np.zeros((2, 1))),
    ],
)
def test_a_value_of_another_type_is_refused(type_: str, given: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        bind(f"$x: {type_}", {"x": given})
    (problem,) = caught.value.fields["problems"]
    assert problem["parameter"] == "x"
    str(caught.value).encode()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("type_", "given", "told"),
    [
        ("F64?", Decimal("1.5"), "decimal.Decimal"),
        ("Date", "soon", "str"),
        ("Vector(2)", np.zeros(3), "numpy.ndarray"),
        ("[String]", [1], "list"),
        ("I32", 2**31, "int"),
        ("String", None, "null"),
    ],
)
def test_a_refusal_names_the_parameter_its_declared_type_and_the_type_of_the_value(
    type_: str, given: Any, told: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        bind(f"$x: {type_}", {"x": given})
    (problem,) = caught.value.fields["problems"]
    assert (problem["parameter"], problem["declared"], problem["given"]) == ("x", type_, told)
    assert "$x" in str(caught.value)


def test_what_is_not_given_or_not_declared_has_no_type() -> None:
    with pytest.raises(ParameterError) as caught:
        bind("$x: I32", {"y": 1})
    told = [(p["parameter"], p["declared"], p["given"]) for p in caught.value.fields["problems"]]
    assert told == [("y", None, "int"), ("x", "I32", None)]


def test_what_may_be_null_may_be_left_out() -> None:
    assert bind("$x: I32?, $y: [String]?", {"y": None}) == {"x": None, "y": None}


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ParameterError) as caught:
        bind("$name: String, $age: I32", {"nmae": "a", "age": "b"})
    assert caught.value.condition == "query_parameter"
    assert str(caught.value) == (
        "the query q can't run with these parameters: $nmae is not declared. Did you mean $name? "
        "$name is String and has no value. $age is I32, not 'b'."
    )


@pytest.mark.parametrize(
    ("declared", "given", "clause", "rest"),
    [
        ("$n: I64", -1, "", "return { $p.name } limit $n"),
        ("$n: I64?", None, "", "return { $p.name } offset $n"),
        ("$n: U64", 2**63, "", "return { $p.name } limit $n"),
        ("$n: I32", 3, 'fuzzy($p.bio, "a", $n)', "return { $p.name }"),
        ("$n: I32", 0, "", 'return { $p.name } order { rrf(bm25($p.bio, "a"), bm25($p.name, "a"), $n) } limit 1'),
        ("$n: String", "(", "$p.name matches $n", "return { $p.name }"),
        ("$n: String", "(?=x)", "$p.name matches $n", "return { $p.name }"),
    ],
)
def test_a_value_must_suit_its_use(declared: str, given: Any, clause: str, rest: str) -> None:
    with pytest.raises(ParameterError):
        bind(declared, {"n": given}, clause, rest)


# ---- comparisons with numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("value", [-3e9, -2.5, -2, 0, 1.5, 2, 2.0, 3, 3e9, float("inf"), float("-inf"), 2**70])
def test_exact_is_true_for_the_same_integers(operator: str, value: float) -> None:
    import operator as o

    does = {"=": o.eq, "!=": o.ne, "<": o.lt, "<=": o.le, ">": o.gt, ">=": o.ge}
    found = exact("I32", operator, value)
    for number in (-(2**31), -3, -2, -1, 0, 1, 2, 3, 4, 2**31 - 1):
        expected = does[operator](number, value)
        if isinstance(found, bool):
            assert found is expected
        else:
            assert type(found.value) is int
            assert -(2**31) <= found.value < 2**31
            assert does[found.operator](number, found.value) is expected


def test_exact_rounds_to_the_width_of_the_column() -> None:
    found = exact("F32", "=", 0.1)
    assert not isinstance(found, bool)
    assert found.value == 0.10000000149011612
    assert exact("F32", "<", 1e300) is True
    assert exact("F32", "=", 1e300) is False
    assert exact("F64", "=", 0.1) == ("=", 0.1)
