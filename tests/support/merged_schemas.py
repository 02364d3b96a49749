"""What a schema says, without the ids that it has."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.language.schema import Schema


def content(schema: Schema) -> object:
    """Everything but ids, text and order; not how names came about."""

    def annotations(owner):  # type: ignore[no-untyped-def]
        return {(a.name, repr(a.argument), a.options) for a in owner.annotations if a.name != "rename_from"}

    def of(t):  # type: ignore[no-untyped-def]
        head = replace(t, id="", aliases=(), properties=(), constraints=(), annotations=())
        properties = {p.name: (p.type, p.nullable, frozenset(annotations(p))) for p in t.properties}
        constraints = {(c.kind, frozenset(c.properties), c.low, c.high, c.pattern) for c in t.constraints}
        return head, annotations(t), properties, constraints

    interfaces = {
        i.name: {p.name: (p.type, p.nullable, frozenset(annotations(p))) for p in i.properties}
        for i in schema.interfaces
    }
    return {t.key: of(t) for t in schema.types()}, interfaces
