"""Random schemas that keep all rules, and random edits of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

from omnigraph.language.schema import (
    Annotation,
    Constraint,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    PropertyType,
    Schema,
)
from omnigraph.language.schema.model import INTEGERS, NUMBERS, SCALARS
from omnigraph.language.schema.syntax.constraints import constraint_identity, in_order
from omnigraph.language.schema.syntax.literals import INTEGER_LIMITS

MARKS = ("key", "unique", "index")
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)
words = texts.map(lambda t: f"w{t}")
unsigned = st.integers(0, 2**64 - 1) | st.floats(0, allow_infinity=False, allow_nan=False)
literals = texts | unsigned | st.booleans()
type_names = st.from_regex(r"[A-Z][A-Za-z0-9_]{0,4}", fullmatch=True)
property_names = st.from_regex(r"[a-z_][A-Za-z0-9_]{0,4}", fullmatch=True).filter(
    lambda n: n not in ("id", "src", "dst")
)
property_types = st.one_of(
    st.sampled_from(SCALARS).map(PropertyType),
    st.sampled_from([s for s in SCALARS if s != "Blob"]).map(lambda s: PropertyType("List", item=s)),
    st.sets(st.from_regex(r"[A-Za-z0-9_-]{1,4}", fullmatch=True), min_size=1, max_size=4).map(
        lambda v: PropertyType("Enum", values=tuple(sorted(v)))
    ),
    st.integers(1, 2**31 - 1).map(lambda n: PropertyType("Vector", dimension=n)),
)
unknown_annotations = st.builds(
    Annotation,
    st.sampled_from(["x", "y", "Zed", "_9"]),
    st.none() | literals,
    st.dictionaries(st.sampled_from(["a", "b_", "C"]), literals, max_size=2).map(lambda d: tuple(d.items())),
).map(lambda a: a if a.argument is not None else Annotation(a.name))


def defaults(t: PropertyType) -> st.SearchStrategy[object]:
    if t.kind in INTEGERS:
        return st.integers(*INTEGER_LIMITS[t.kind])
    if t.kind in ("F32", "F64"):
        return st.floats(width=32 if t.kind == "F32" else 64, allow_nan=False, allow_infinity=False)
    by_kind: dict[str, st.SearchStrategy[object]] = {
        "String": texts,
        "Bool": st.booleans(),
        "Enum": st.sampled_from(t.values or ("",)),
        "Date": st.dates().map(lambda d: d.isoformat()),
        "DateTime": st.datetimes().map(lambda d: d.isoformat(timespec="milliseconds") + "Z"),
    }
    return by_kind[t.kind]


@st.composite
def properties(draw: Callable, names: list[str]) -> list[Property]:
    found = []
    for name in names:
        type_ = draw(property_types)
        annotations = draw(st.lists(unknown_annotations, max_size=2))
        if draw(st.booleans()):
            annotations.append(Annotation("description", draw(words)))
        if type_.kind not in ("Blob", "Vector", "List") and draw(st.integers(0, 3)) == 0:
            annotations.append(Annotation("default", draw(defaults(type_))))
        if draw(st.integers(0, 5)) == 0:
            annotations.append(Annotation("rename_from", f"old_{name}"))
        annotations = draw(st.permutations(annotations))
        found.append(Property(name, type_, draw(st.booleans()), tuple(annotations)))
    return found


def markable(p: Property, kind: str) -> bool:
    if kind == "key" and p.nullable:
        return False
    return p.type.kind not in ("Blob", "List") and (kind == "index" or p.type.kind != "Vector")


@st.composite
def constraints(draw: Callable, props: list[Property], owner: str, given: list[Constraint]) -> tuple[Constraint, ...]:
    found = {constraint_identity(c): c for c in given}

    def add(c: Constraint) -> None:
        found.setdefault(constraint_identity(c), c)

    for kind in ("key", "unique", "index") if owner == "node" else ("unique", "index"):
        members = [p.name for p in props if markable(p, kind)]
        if owner == "edge" and kind == "unique":
            members += ["id", "src", "dst"]
        for _ in range(draw(st.integers(0, 1 if kind == "key" else 2)) if members else 0):
            chosen = draw(st.lists(st.sampled_from(members), min_size=1, max_size=3, unique=True))
            add(Constraint(kind, tuple(chosen)))
    for p in props if owner == "node" else ():
        if p.type.kind in NUMBERS and p.default is None and draw(st.integers(0, 3)) == 0:
            bound = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
            low, high = sorted((draw(bound), draw(bound)))
            add(Constraint("range", (p.name,), *draw(st.sampled_from([(low, high), (low, None), (None, high)]))))
        if p.type.kind == "String" and draw(st.integers(0, 3)) == 0:
            add(Constraint("check", (p.name,), pattern=draw(st.sampled_from(["", "^\\w+$", 'a"b', "\t|\n", "ü{2}"]))))
    return in_order(found.values(), [p.name for p in props])


def with_embeddings(draw: Callable, props: list[Property]) -> list[Property]:
    sources = [p.name for p in props if p.type.kind == "String"]
    found = []
    for p in props:
        if p.type.kind == "Vector" and sources and draw(st.booleans()):
            options = (("model", draw(words)),) if draw(st.booleans()) else ()
            embed = Annotation("embed", draw(st.sampled_from(sources)), options)
            p = replace(p, annotations=(*p.annotations, embed))
        found.append(p)
    return found


@st.composite
def schemas(draw: Callable) -> Schema:
    names = draw(st.lists(type_names, min_size=1, max_size=8, unique_by=str.lower))
    count_i = draw(st.integers(0, min(2, len(names) - 1)))
    count_n = draw(st.integers(1, len(names) - count_i))
    interfaces = []
    for number, name in enumerate(names[:count_i]):
        own = draw(st.lists(property_names, max_size=3, unique=True))
        props = draw(properties([f"i{number}_{n}" for n in own]))
        marked = []
        for p in props:
            marks = tuple(Annotation(k) for k in ("unique", "index") if markable(p, k) and draw(st.booleans()))
            marked.append(replace(p, annotations=(*marks, *p.annotations)))
        interfaces.append(InterfaceType(name, tuple(marked)))
    nodes = [draw(node_types(name, interfaces)) for name in names[count_i : count_i + count_n]]
    edges = [draw(edge_types(name, [n.name for n in nodes])) for name in names[count_i + count_n :]]
    return Schema(tuple(interfaces), tuple(nodes), tuple(edges))


@st.composite
def type_annotations(draw: Callable) -> tuple[Annotation, ...]:
    found = draw(st.lists(unknown_annotations, max_size=2))
    for name in ("description", "instruction"):
        if draw(st.integers(0, 2)) == 0:
            found.append(Annotation(name, draw(words)))
    if draw(st.integers(0, 5)) == 0:
        found.append(Annotation("rename_from", "Formerly"))
    return tuple(draw(st.permutations(found)))


@st.composite
def node_types(draw: Callable, name: str, interfaces: list[InterfaceType]) -> NodeType:
    chosen = draw(st.lists(st.sampled_from(interfaces), unique_by=lambda i: i.name)) if interfaces else []
    inherited, given = [], []
    for interface in chosen:
        for p in interface.properties:
            given += [Constraint(a.name, (p.name,)) for a in p.annotations if a.name in MARKS]
            kept = tuple(a for a in p.annotations if a.name not in MARKS)
            if draw(st.integers(0, 3)) == 0:
                kept = (*(a for a in kept if a.name != "description"), Annotation("description", draw(words)))
            inherited.append(replace(p, annotations=kept))
    taken = {p.name for p in inherited}
    own = draw(st.lists(property_names.filter(lambda n: n not in taken), max_size=5, unique=True))
    props = inherited + with_embeddings(draw, draw(properties(own)))
    made = draw(constraints(props, "node", given))
    return NodeType(name, tuple(props), made, tuple(i.name for i in chosen), draw(type_annotations()))


@st.composite
def edge_types(draw: Callable, name: str, nodes: list[str]) -> EdgeType:
    props = draw(properties(draw(st.lists(property_names, max_size=3, unique=True))))
    low = draw(st.integers(0, 3))
    return EdgeType(
        name,
        draw(st.sampled_from(nodes)),
        draw(st.sampled_from(nodes)),
        tuple(props),
        draw(constraints(props, "edge", [])),
        low,
        draw(st.none() | st.integers(low, 9)),
        draw(type_annotations()),
    )


# ---- edits -----------------------------------------------------------------------------------------------------------


@st.composite
def edits(draw: Callable, schema: Schema) -> Schema:
    """The schema after a few changes that a planner mostly supports; it may break rules of the language."""
    for _ in range(draw(st.integers(1, 4))):
        schema = draw(st.sampled_from([_add_type, _edit_type, _drop_type, _rename_type, _shuffle]))(draw, schema)
    return schema


def _add_type(draw: Callable, schema: Schema) -> Schema:
    name = f"Added{len(schema.nodes)}x{draw(st.integers(0, 99))}"
    return replace(schema, nodes=(*schema.nodes, draw(node_types(name, list(schema.interfaces)))))


def _drop_type(draw: Callable, schema: Schema) -> Schema:
    if schema.edges and draw(st.booleans()):
        gone = draw(st.sampled_from(schema.edges))
        return replace(schema, edges=tuple(e for e in schema.edges if e is not gone))
    if not schema.nodes:
        return schema
    node = draw(st.sampled_from(schema.nodes))
    edges = tuple(e for e in schema.edges if node.name not in (e.source, e.target))
    return replace(schema, nodes=tuple(n for n in schema.nodes if n is not node), edges=edges)


def _renamed(annotations: tuple[Annotation, ...], old: str) -> tuple[Annotation, ...]:
    return (*(a for a in annotations if a.name != "rename_from"), Annotation("rename_from", old))


def _rename_type(draw: Callable, schema: Schema) -> Schema:
    if not schema.nodes:
        return schema
    node = draw(st.sampled_from(schema.nodes))
    name = f"Renamed{draw(st.integers(0, 999))}"

    def follow(end: str) -> str:
        return name if end == node.name else end

    renamed = replace(node, name=name, annotations=_renamed(node.annotations, node.name))
    edges = tuple(replace(e, source=follow(e.source), target=follow(e.target)) for e in schema.edges)
    return replace(schema, nodes=tuple(renamed if n is node else n for n in schema.nodes), edges=edges)


def _edit_type(draw: Callable, schema: Schema) -> Schema:
    if not schema.nodes:
        return schema
    node = draw(st.sampled_from(schema.nodes))
    props, cons = list(node.properties), list(node.constraints)
    choice = draw(st.sampled_from(["add", "drop", "rename", "extend", "describe", "index"]))
    if choice == "add":
        default = draw(st.none() | st.integers(0, 9))
        annotations = () if default is None else (Annotation("default", default),)
        props.append(Property(f"added{draw(st.integers(0, 99))}", PropertyType("I32"), default is None, annotations))
    elif choice == "describe":
        node = replace(node, annotations=(*node.annotations, Annotation("note", draw(texts))))
        return replace(schema, nodes=tuple(node if n.name == node.name else n for n in schema.nodes))
    elif props:
        at = draw(st.integers(0, len(props) - 1))
        p = props[at]
        if choice == "drop":
            del props[at]
            cons = [c for c in cons if set(c.properties) != {p.name}]
        elif choice == "rename":
            name = f"renamed{draw(st.integers(0, 99))}"
            props[at] = replace(p, name=name, annotations=_renamed(p.annotations, p.name))
            cons = [replace(c, properties=tuple(name if m == p.name else m for m in c.properties)) for c in cons]
        elif choice == "extend" and p.type.kind == "Enum":
            props[at] = replace(p, type=replace(p.type, values=tuple(sorted({*p.type.values, "more"}))))
        elif choice == "index" and p.type.kind not in ("Blob", "List"):
            cons.append(Constraint("index", (p.name,)))
    edited = replace(node, properties=tuple(props), constraints=tuple(cons))
    return replace(schema, nodes=tuple(edited if n is node else n for n in schema.nodes))


def _shuffle(draw: Callable, schema: Schema) -> Schema:
    return replace(
        schema,
        nodes=tuple(draw(st.permutations(schema.nodes))),
        edges=tuple(draw(st.permutations(schema.edges))),
    )
