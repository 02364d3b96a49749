"""Random operations that make sense on a state: mostly allowed, sometimes refused for a reason that the model knows."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.properties.model import Operation, Property, State, Type, schema_text

KEYS = ["ada", "ben", "cy", "o'neil", "Zoë", 'q"t', "a/b", "x y"]
BRANCHES = ["one", "two", "deep/three"]
PROPERTIES = ["p", "q", "size", "order"]
VALUES = {
    "String": st.sampled_from(["", "x", "o'neil", "Zoë", "a\nb", "%_"]),
    "I32": st.integers(-(2**31), 2**31 - 1) | st.integers(0, 3),
    "I64": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3),
    "F64": st.floats(allow_nan=False, allow_infinity=False) | st.just(0.5),
    "Bool": st.booleans(),
}
DEFAULTS: dict[str, list[Any]] = {"String": ["none", ""], "I32": [0, -7], "F64": [1.5], "Bool": [True, False]}


@st.composite
def rows(draw: Any, t: Type, state: State) -> list[dict[str, Any]]:
    """Full or partial images with keys that differ; edges between nodes that mostly exist."""
    if t.is_edge:
        ends = [sorted(state.types[name].rows) or KEYS[:1] for name in (t.source, t.target)]
        pick = [st.sampled_from(some) | st.sampled_from(KEYS) for some in ends]
        made = [{"from": draw(pick[0]), "to": draw(pick[1])} for _ in range(draw(st.integers(1, 2)))]
    else:
        made = [{"name": key} for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True))]
    for row in made:
        row.update(draw(values(t)))
    return made


@st.composite
def values(draw: Any, t: Type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for p in t.properties:
        if draw(st.booleans()):
            found[p.name] = draw(VALUES[p.type] | st.none() if p.nullable else VALUES[p.type])
    return found


@st.composite
def statements(draw: Any, state: State) -> dict[str, Any]:
    t = draw(st.sampled_from(list(state.types.values())))
    known = sorted(t.rows) or KEYS
    ids = st.lists(st.sampled_from(known) | st.sampled_from(KEYS), min_size=1, max_size=2, unique=True)
    put = ["link", "link"] if t.is_edge else ["upsert", "upsert", "upsert", "insert"]
    do = draw(st.sampled_from([*put, "update", "delete"]))
    if do in ("insert", "upsert", "link"):
        return {"do": do, "type": t.name, "rows": draw(rows(t, state))}
    if do == "update":
        return {"do": do, "type": t.name, "ids": draw(ids), "set": draw(values(t).filter(bool)) if t.properties else {}}
    return {"do": do, "type": t.name, "ids": draw(ids)}


@st.composite
def writes(draw: Any, branches: dict[str, State]) -> Operation:
    branch = draw(st.sampled_from(sorted(branches)))
    found = draw(st.lists(statements(branches[branch]), min_size=1, max_size=3))
    found = [s for s in found if s["do"] != "update" or s["set"]]
    return {"op": "write", "branch": branch, "statements": found}


@st.composite
def schema_changes(draw: Any, branches: dict[str, State]) -> Operation:
    branch = draw(st.sampled_from(sorted(branches)))
    state = branches[branch]
    changes = [c for c in (_add(draw, state), _drop(draw, state), _rename(draw, state), _types(draw, state)) if c]
    change = draw(st.sampled_from(changes))
    return {"op": "schema", "branch": branch, "change": change, "text": schema_text(state, change)}


def _add(draw: Any, state: State) -> dict[str, Any] | None:
    t = draw(st.sampled_from(list(state.types.values())))
    free = [name for name in PROPERTIES if name not in {p.name for p in t.properties}]
    if not free:
        return None
    kind = draw(st.sampled_from(sorted(DEFAULTS)))
    default = draw(st.none() | st.sampled_from(DEFAULTS[kind]))
    added = {"name": draw(st.sampled_from(free)), "type": kind, "default": default}
    return {"what": "add_property", "type": t.name, "property": added}


def _drop(draw: Any, state: State) -> dict[str, Any] | None:
    found = [(t.name, p.name) for t in state.types.values() for p in t.properties]
    if not found:
        return None
    type_name, name = draw(st.sampled_from(found))
    return {"what": "drop_property", "type": type_name, "name": name}


def _rename(draw: Any, state: State) -> dict[str, Any] | None:
    t = draw(st.sampled_from(list(state.types.values())))
    if draw(st.booleans()):
        to = f"{t.name.rstrip('X')}X" if not t.name.endswith("X") else t.name.rstrip("X")
        return None if to in state.types else {"what": "rename_type", "type": t.name, "to": to}
    free = [name for name in PROPERTIES if name not in {p.name for p in t.properties}]
    if not free or not t.properties:
        return None
    old: Property = draw(st.sampled_from(t.properties))
    return {"what": "rename_property", "type": t.name, "name": old.name, "to": draw(st.sampled_from(free))}


def _types(draw: Any, state: State) -> dict[str, Any]:
    for name in ("Extra", "Linked"):
        if name in state.types and draw(st.booleans()):
            return {"what": "drop_type", "name": name}
    if "Extra" not in state.types:
        return {"what": "add_type", "name": "Extra", "source": "", "target": ""}
    if "Linked" not in state.types:
        ends = [t.name for t in state.nodes if t.name != "Extra"]
        return {"what": "add_type", "name": "Linked", "source": draw(st.sampled_from(ends)), "target": ends[0]}
    return {"what": "drop_type", "name": "Linked"}
