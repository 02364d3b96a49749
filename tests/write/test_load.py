"""A parsed input becomes one write, by mode; bad lines are refused together or put aside with what they orphan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import orjson
import pytest

from omnigraph.errors import ConstraintViolation, KeyConflict, RecordError
from omnigraph.language.schema.syntax.parse import parse_schema
from omnigraph.write.envelope import parse
from omnigraph.write.load import Mode, Prepared, prepare_load
from tests.write.memory import MemoryReader

SCHEMA = parse_schema(
    """
    node Person { name: String @key  age: I32?  @range(age, 0..150) }
    node Note { text: String }
    edge Knows: Person -> Person @card(0..2) { since: I32? }
    """
)


def person(name: str, **data: object) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, **data}}


def note(text: str, **data: object) -> dict[str, object]:
    return {"type": "Note", "data": {"text": text, **data}}


def knows(a: str, b: str, **data: object) -> dict[str, object]:
    return {"edge": "Knows", "from": a, "to": b, "data": data}


def graph() -> MemoryReader:
    return MemoryReader(
        SCHEMA,
        {
            "Person": [{"name": "a", "age": 1}, {"name": "b"}],
            "Note": [{"text": "old", "id": "n1"}],
            "Knows": [{"from": "a", "to": "b", "id": "k1"}],
        },
    )


def load(
    lines: Sequence[Mapping[str, object] | bytes],
    mode: Mode,
    on_error: Literal["fail", "quarantine"] = "fail",
    reader: MemoryReader | None = None,
) -> Prepared:
    text = b"\n".join(line if isinstance(line, bytes) else orjson.dumps(line) for line in lines)
    parsed = parse(SCHEMA, [text], keep_text=on_error == "quarantine")
    return prepare_load(SCHEMA, parsed, reader or graph(), mode=mode, on_error=on_error)


def names(prepared: Prepared) -> dict[str, list[str]]:
    return {name: d.ids.to_pylist() for name, d in prepared.deltas.items()}


def test_append_takes_new_entities_only() -> None:
    prepared = load([person("c"), knows("c", "a")], "append")
    assert names(prepared)["Person"] == ["c"]
    assert all(d.all_new and not d.replaces_all for d in prepared.deltas.values())
    for line in (person("a"), note("x", id="n1"), knows("a", "b", id="k1")):
        with pytest.raises(KeyConflict):
            load([line], "append")


def test_merge_replaces_by_id_and_leaves_out_what_is_unchanged() -> None:
    prepared = load([person("a", age=1), person("b", age=5), person("c"), note("old", id="n1")], "merge")
    assert names(prepared) == {"Person": ["b", "c"], "Note": []}


def test_overwrite_replaces_the_types_that_the_input_holds() -> None:
    prepared = load([person("a"), person("b"), person("z")], "overwrite")
    assert list(prepared.deltas) == ["Person"]
    assert prepared.deltas["Person"].replaces_all
    with pytest.raises(ConstraintViolation) as caught:
        load([person("a")], "overwrite")
    assert caught.value.fields["violations"][0]["entity_id"] == "k1"


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_key_twice_is_refused_in_every_mode(mode: Mode) -> None:
    with pytest.raises(ConstraintViolation) as caught:
        load([person("a", age=1), person("x"), b"", person("x", age=2)], mode)
    [violation] = [v for v in caught.value.fields["violations"] if v.get("line") == 4]
    assert violation["rule"] == "key"
    assert violation["message"] == "key: 'x' is already given by line 2"


@pytest.mark.parametrize("line", [note("x", id="n9"), knows("a", "b", id="k9")])
def test_an_own_id_twice_is_refused_but_in_merge_the_last_line_wins(line: dict[str, object]) -> None:
    for mode in ("append", "overwrite"):
        with pytest.raises(ConstraintViolation) as caught:
            load([person("a"), person("b"), line, line] if mode == "overwrite" else [line, line], mode)  # type: ignore[arg-type]
        assert caught.value.fields["violations"][0]["rule"] == "id"
    prepared = load([line, line], "merge")
    assert [d.rows.num_rows for d in prepared.deltas.values()] == [1]


def test_a_repeated_edge_counts_once_towards_its_limit() -> None:
    prepared = load([knows("a", "a", id="k9", since=n) for n in range(5)], "merge")
    assert prepared.deltas["Knows"].rows["since"].to_pylist() == [4]


def test_bad_lines_are_refused_together_with_their_numbers() -> None:
    with pytest.raises(RecordError) as caught:
        load([person("x"), b"{", person("y", age="old")], "append")
    assert caught.value.fields["count"] == 2
    assert [v["line"] for v in caught.value.fields["violations"]] == [2, 3]
    assert "line 3, node:Person 'y': age: expected I32, not the string 'old'" in caught.value.message


def test_broken_rules_name_the_line() -> None:
    with pytest.raises(ConstraintViolation) as caught:
        load([person("x"), b"", person("y", age=200)], "append")
    assert caught.value.fields["violations"] == [
        {
            "rule": "range",
            "table_key": "node:Person",
            "message": "age: 200 is not between 0 and 150",
            "entity_id": "y",
            "property": "age",
            "line": 3,
        }
    ]


def test_quarantine_puts_bad_lines_aside_and_loads_the_rest() -> None:
    lines: list[Mapping[str, object] | bytes] = [
        person("c"),
        b"not json",
        person("old", age="x"),
        person("d", age=999),
        person("c", age=1),
        person("a"),
        knows("c", "old"),
        knows("c", "d"),
        knows("c", "nobody"),
        knows("c", "a"),
        knows("c", "a", id="k1"),
        note("fine"),
    ]
    prepared = load(lines, "append", "quarantine")
    assert [(r.line, r.rule, r.reason) for r in prepared.rejected] == [
        (2, "record", "not JSON: Expecting value at character 0"),
        (3, "type", "age: expected I32, not the string 'x'"),
        (4, "range", "age: 999 is not between 0 and 150"),
        (5, "key", "key: 'c' is already given by line 1"),
        (6, "key", "key: 'a' exists already"),
        (7, "endpoint", "to: Person 'old' was rejected (line 3)"),
        (8, "endpoint", "to: Person 'd' was rejected (line 4)"),
        (9, "endpoint", "to: there is no Person 'nobody'"),
        (11, "id", "id: 'k1' exists already"),
    ]
    originals = [line if isinstance(line, bytes) else orjson.dumps(line) for line in lines]
    assert [r.record for r in prepared.rejected] == [originals[r.line - 1] for r in prepared.rejected]
    assert {name: d.rows.num_rows for name, d in prepared.deltas.items()} == {"Person": 1, "Note": 1, "Knows": 1}


def test_quarantine_of_edges_beyond_a_limit_keeps_the_first_ones() -> None:
    prepared = load([knows("b", "a", since=n) for n in range(4)], "append", "quarantine")
    assert [(r.line, r.rule) for r in prepared.rejected] == [(3, "cardinality"), (4, "cardinality")]
    assert prepared.deltas["Knows"].rows["since"].to_pylist() == [0, 1]


def test_quarantine_in_merge_keeps_the_entity_as_it_was() -> None:
    prepared = load([person("a", age=-1), knows("b", "a")], "merge", "quarantine")
    assert [r.rule for r in prepared.rejected] == ["range"]
    assert {name: d.rows.num_rows for name, d in prepared.deltas.items()} == {"Person": 0, "Knows": 1}


def test_what_no_line_is_to_blame_for_is_refused_even_with_quarantine() -> None:
    with pytest.raises(ConstraintViolation):
        load([person("c")], "overwrite", "quarantine")


def test_a_parsed_input_can_be_prepared_again_on_a_newer_state() -> None:
    parsed = parse(SCHEMA, [orjson.dumps(person("c"))])
    first = prepare_load(SCHEMA, parsed, graph(), mode="append")
    after = graph().applied(first.deltas)
    with pytest.raises(KeyConflict):
        prepare_load(SCHEMA, parsed, after, mode="append")
    assert all(d.is_empty for d in prepare_load(SCHEMA, parsed, after, mode="merge").deltas.values())
