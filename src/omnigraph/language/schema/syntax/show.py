"""Canonical .pg text of a schema: it parses back to the same model, apart from ids and source.

One property per line; @key, @unique and @index of one property follow it, all other constraints are in the body below.
Properties from interfaces are not repeated. If a node's properties are not in an order that a file can express (after
an interface got new ones), the text is correct and only the order differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from omnigraph.language.schema.model import (
    EDGE_COLUMNS,
    Annotation,
    Constraint,
    EdgeType,
    InterfaceType,
    Literal_,
    NodeType,
    Property,
    Schema,
)
from omnigraph.language.schema.syntax.annotations import MARKS

Mark = tuple[str, tuple[str, ...]]
_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def render(schema: Schema) -> str:
    interfaces = {i.name: i for i in schema.interfaces}
    blocks = [
        *(_interface(i) for i in schema.interfaces),
        *(_node(n, interfaces) for n in schema.nodes),
        *(_edge(e) for e in schema.edges),
    ]
    return "\n\n".join(blocks) + ("\n" if blocks else "")


def render_type(t: InterfaceType | NodeType | EdgeType, schema: Schema) -> str:
    """One declaration of the schema."""
    if isinstance(t, InterfaceType):
        return _interface(t)
    return _edge(t) if isinstance(t, EdgeType) else _node(t, {i.name: i for i in schema.interfaces})


def render_property(p: Property, constraints: Iterable[Constraint] = ()) -> str:
    """One property as its type declares it, with the constraints of the type that follow it."""
    return _property(p, _marks_of(p.name, constraints, set()))


def _interface(i: InterfaceType) -> str:
    return _block(f"interface {i.name}", [_property(p, ()) for p in i.properties])


def _node(n: NodeType, interfaces: dict[str, InterfaceType]) -> str:
    implements = f" implements {', '.join(n.implements)}" if n.implements else ""
    inherited = _inherited(n, interfaces)
    marks: set[Mark] = {(a.name, (p.name,)) for p in inherited.values() for a in p.annotations if a.name in MARKS}
    lines = [
        _property(p, _marks_of(p.name, n.constraints, marks))
        for p in n.properties
        if not _is_inherited(p, inherited) or _marks_of(p.name, n.constraints, marks)
    ]
    lines += [_constraint(c) for c in n.constraints if not _on_property(c)]
    return _block(f"node {n.name}{_annotations(n.annotations)}{implements}", lines)


def _edge(e: EdgeType) -> str:
    maximum = "" if e.card_max is None else e.card_max
    card = f" @card({e.card_min}..{maximum})" if e.card_min or e.card_max is not None else ""
    head = f"edge {e.name}: {e.source} -> {e.target}{card}{_annotations(e.annotations)}"
    lines = [_property(p, _marks_of(p.name, e.constraints, set())) for p in e.properties]
    lines += [_constraint(c) for c in e.constraints if not _on_property(c)]
    return _block(head, lines) if lines else head


def _block(head: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{head} {{", *(f"  {line}" for line in lines), "}"]) if lines else f"{head} {{}}"


def _inherited(n: NodeType, interfaces: dict[str, InterfaceType]) -> dict[str, Property]:
    """The properties from the node's interfaces, with their marks; annotations of a later interface replace earlier
    ones.
    """
    properties: dict[str, Property] = {}
    for name in n.implements:
        for p in interfaces[name].properties:
            before = properties.get(p.name)
            names = {a.name for a in p.annotations}
            kept_annotations = () if before is None else tuple(a for a in before.annotations if a.name not in names)
            properties[p.name] = Property(p.name, p.type, p.nullable, (*kept_annotations, *p.annotations))
    return properties


def _is_inherited(p: Property, inherited: dict[str, Property]) -> bool:
    from_interface = inherited.get(p.name)
    return from_interface is not None and p.annotations == tuple(
        a for a in from_interface.annotations if a.name not in MARKS
    )


def _marks_of(name: str, constraints: Iterable[Constraint], inherited: set[Mark]) -> list[str]:
    return [
        c.kind
        for c in constraints
        if _on_property(c) and c.properties == (name,) and (c.kind, c.properties) not in inherited
    ]


def _on_property(c: Constraint) -> bool:
    return c.kind in MARKS and len(c.properties) == 1 and c.properties[0] not in EDGE_COLUMNS


def _property(p: Property, marks: Iterable[str]) -> str:
    text = "".join(f" @{m}" for m in marks)
    return f"{p.name}: {p.type}{'?' if p.nullable else ''}{text}{_annotations(p.annotations)}"


def _constraint(c: Constraint) -> str:
    names = ", ".join(c.properties)
    if c.kind == "range":
        low, high = ("" if b is None else literal(b) for b in (c.low, c.high))
        return f"@range({names}, {low}..{high})"
    if c.kind == "check":
        return f"@check({names}, {literal(c.pattern or '')})"
    return f"@{c.kind}({names})"


def _annotations(annotations: Iterable[Annotation]) -> str:
    return "".join(f" {_annotation(a)}" for a in annotations)


def _annotation(a: Annotation) -> str:
    if a.argument is None:
        return f"@{a.name}"
    options = "".join(f", {key}={literal(value)}" for key, value in a.options)
    return f"@{a.name}({literal(a.argument)}{options})"


def literal(value: Literal_) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        # The language has no exponents; Decimal writes the shortest exact spelling without one.
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else f"{text}.0"
    return (
        '"' + "".join(_ESCAPED.get(c) or (c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}") for c in value) + '"'
    )
