"""Properties that hold for every schema: text, JSON and plans lose nothing."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from omnigraph.errors import SchemaRuleError
from omnigraph.language.schema import (
    Schema,
    accept,
    fresh_ids,
    parse_schema,
    plan_changes,
    render,
    schema_from_json,
    schema_to_json,
)
from omnigraph.language.schema.syntax.constraints import constraint_identity
from tests.language.schema.strategies import edits, schemas
from tests.support.schema_ids import without_ids

RELAXED = settings(
    max_examples=30,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def content(schema: Schema) -> object:
    """Everything but ids, source and the order of declarations and properties."""

    def of(t):  # type: ignore[no-untyped-def]
        head = replace(t, id="", properties=(), constraints=())
        return head, {replace(p, id="") for p in t.properties}, {constraint_identity(c) for c in t.constraints}

    return {t.key: of(t) for t in schema.types()}, {(i.name, frozenset(i.properties)) for i in schema.interfaces}


@RELAXED
@given(schemas())
def test_canonical_text_parses_back_to_the_same_schema(schema: Schema) -> None:
    text = render(schema)
    assert without_ids(parse_schema(text)) == schema
    assert render(parse_schema(text)) == text


@RELAXED
@given(schemas(), st.booleans())
def test_json_gives_back_the_same_schema(schema: Schema, with_ids: bool) -> None:
    if with_ids:
        schema = replace(accept(schema, new_id=fresh_ids()), source=render(schema))
    assert schema_from_json(json.loads(json.dumps(schema_to_json(schema)))) == schema


@RELAXED
@given(schemas())
def test_a_schema_has_no_changes_against_itself(schema: Schema) -> None:
    accepted = accept(schema, new_id=fresh_ids())
    assert plan_changes(accepted, schema, new_id=fresh_ids()).steps == ()
    assert plan_changes(accepted, parse_schema(render(accepted)), new_id=fresh_ids()).steps == ()


@RELAXED
@given(st.data())
def test_a_plan_leads_to_the_desired_schema_and_nothing_is_left_to_do(data: st.DataObject) -> None:
    accepted = accept(data.draw(schemas()), new_id=fresh_ids())
    try:
        desired = parse_schema(render(data.draw(edits(without_ids(accepted)))))
    except SchemaRuleError:
        # The edit broke a rule of the language (dropped an embedded source, named a type twice, …).
        assume(False)
    plan = plan_changes(accepted, desired, new_id=fresh_ids())
    event(f"supported: {plan.supported}, changed: {plan.changed}")
    if not plan.supported or not plan.changed:
        assert plan.result is accepted
        return
    assert content(plan.result) == content(desired)
    again = plan_changes(plan.result, desired, new_id=fresh_ids())
    assert again.steps == ()
    before = {i for t in accepted.types() for i in (t.id, *(p.id for p in t.properties))}
    after = [i for t in plan.result.types() for i in (t.id, *(p.id for p in t.properties))]
    assert all(after)
    assert len(after) == len(set(after))
    added = [s.to_json() for s in plan.steps if s.kind in ("add_type", "add_property") and s.to_json().get("type_id")]
    fresh = {s.get("property_id", s["type_id"]) for s in added}
    assert fresh <= set(after) - before
    assert schema_from_json(schema_to_json(plan.result)) == plan.result
