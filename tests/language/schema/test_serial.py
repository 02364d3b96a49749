"""The JSON of a schema is complete and compact, and what is no such JSON is refused with a typed error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omnigraph.errors import FormatError, HostileOrDamagedManifest, NewerFormat
from omnigraph.language.schema import Schema, schema_from_json, schema_to_json
from tests.language.schema.texts import EVERYTHING, accepted, with_aliases


def test_everything_survives_including_ids_and_source() -> None:
    schema = accepted(EVERYTHING)
    back = schema_from_json(json.loads(json.dumps(schema_to_json(schema))))
    assert back == schema
    assert back.source == EVERYTHING
    assert back.nodes[0].id == schema.nodes[0].id != ""


def test_the_types_of_literals_survive() -> None:
    schema = accepted("node N { a: F64 @x(1) @x(1.0) @x(true) @default(2) @range(b, 0..1.0) b: F64 }")
    back = schema_from_json(json.loads(json.dumps(schema_to_json(schema)))).nodes[0]
    assert [type(a.argument) for a in back.properties[0].annotations] == [int, float, bool, float]
    assert [type(b) for b in (back.constraints[0].low, back.constraints[0].high)] == [int, float]


def test_defaults_are_left_out() -> None:
    assert schema_to_json(accepted("node N { a: I32 }"))["nodes"] == [
        {"name": "N", "id": "n01", "properties": [{"name": "a", "id": "p02", "type": {"kind": "I32"}}]}
    ]
    assert schema_from_json(schema_to_json(Schema())) == Schema()


def test_a_newer_format_asks_for_an_upgrade() -> None:
    with pytest.raises(NewerFormat) as caught:
        schema_from_json(schema_to_json(Schema()) | {"format": 2})
    assert caught.value.fields == {"found": 2, "known": 1}


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"format": "x"},
        {"format": 1, "interfaces": [], "nodes": [{}], "edges": [], "source": ""},
        {"format": 1, "interfaces": [], "nodes": [7], "edges": [], "source": ""},
        {"format": 1, "interfaces": [], "nodes": None, "edges": [], "source": ""},
    ],
)
def test_other_json_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="the stored schema can't be read"):
        schema_from_json(data)


def test_aliases_survive_and_are_left_out_where_there_are_none() -> None:
    schema = with_aliases(accepted("node N { a: I32 } edge E: N -> N"))
    body = json.loads(json.dumps(schema_to_json(schema)))
    assert body["nodes"][0]["aliases"] == ["n77"]
    assert body["nodes"][0]["properties"][0]["aliases"] == ["p78"]
    assert body["edges"][0]["aliases"] == ["e79"]
    assert schema_from_json(body) == schema
    assert "aliases" not in json.dumps(schema_to_json(accepted(EVERYTHING)))


@pytest.mark.parametrize("alias", ["e77", "n77/../x", "N77", "", 7, None, "n01"])
def test_an_alias_has_the_form_of_an_id_and_belongs_to_one_type(alias: Any) -> None:
    body = schema_to_json(accepted("node N { a: I32 } node M { a: I32 }"))
    body["nodes"][1]["aliases"] = [alias]
    with pytest.raises(HostileOrDamagedManifest):
        schema_from_json(body)


@pytest.mark.parametrize("alias", ["n77", "p02"])
def test_an_alias_of_a_property_belongs_to_one_property(alias: str) -> None:
    body = schema_to_json(accepted("node N { a: I32  b: I32 }"))
    body["nodes"][0]["properties"][1]["aliases"] = [alias]
    with pytest.raises(HostileOrDamagedManifest):
        schema_from_json(body)
