"""Elements are the same by id or alias, and schema changes keep aliases."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.language.schema import Schema, accept, parse_schema, plan_changes
from omnigraph.language.schema.identity import counterpart, identifiers, same_element
from tests.language.schema.texts import accepted, counting_ids, plan, with_aliases

TEXT = "node P { a: I32?  b: I32? } edge K: P -> P { c: I32? }"


def test_elements_are_the_same_by_id_or_alias() -> None:
    schema = accepted("node P { a: I32  b: I32 }")
    a, b = schema.nodes[0].properties
    assert same_element(a, replace(a, name="other"))
    assert not same_element(a, b)
    assert same_element(replace(a, aliases=(b.id,)), b)
    assert same_element(b, replace(a, aliases=(b.id,)))
    assert same_element(replace(a, aliases=("p77",)), replace(b, aliases=("p77",)))


def test_elements_of_parsed_schemas_are_never_the_same() -> None:
    (a,) = parse_schema("node P { a: I32 }").nodes[0].properties
    assert identifiers(a) == ()
    assert not same_element(a, a)


def test_the_counterpart_is_looked_up_by_id_before_aliases() -> None:
    ours = with_aliases(accepted(TEXT))
    (person,), (knows,) = ours.nodes, ours.edges
    theirs_person = replace(person, id=person.aliases[0], aliases=(), name="Q")
    theirs = Schema(nodes=(replace(person, id="n99", aliases=("n98",)), theirs_person), edges=())
    assert counterpart(person, theirs) is theirs_person
    assert counterpart(knows, theirs) is None
    first, second = person.properties
    swapped = replace(person, properties=(replace(second, aliases=(first.id,)), first))
    assert counterpart(first, swapped) is first
    assert counterpart(replace(first, id="p99"), swapped) is first


def test_schema_changes_keep_aliases() -> None:
    before = with_aliases(accepted(TEXT))
    after = plan(before, 'node R @rename_from("P") { x: I32? @rename_from("a")  b: I32?  n: I32? } edge K: R -> R')
    node, edge = after.result.node["R"], after.result.edge["K"]
    assert (node.id, node.aliases) == (before.nodes[0].id, before.nodes[0].aliases)
    assert [p.aliases for p in node.properties] == [*(p.aliases for p in before.nodes[0].properties), ()]
    assert edge.aliases == before.edges[0].aliases


def test_an_alias_is_never_given_as_a_new_id() -> None:
    base = accept(parse_schema("node P { a: I32? }"), new_id=counting_ids())
    taken = replace(base, nodes=(replace(base.nodes[0], aliases=("n02",)),))
    added = plan_changes(taken, parse_schema("node P { a: I32? } node Q {}"), new_id=counting_ids()).result.node["Q"]
    assert added.id == "n03"
