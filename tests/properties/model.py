"""A graph as plain dictionaries: what every operation must do, written down without asking the product.

A `State` is one branch: its types and their rows. Operations are JSON values, so that they can be sent to another
process; `after` says what a state becomes, or raises `Refused` with the condition that the product must give.

    {"op": "write", "branch", "statements": [{"do": insert|upsert|update|delete, "type", …}, …]}
    {"op": "schema", "branch", "change": {…}, "text"}
    {"op": "create_branch", "name", "from"}          {"op": "delete_branch", "name"}
"""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Operation = dict[str, Any]


class Refused(Exception):
    """The product must refuse this, with this condition."""

    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition


@dataclass
class Property:
    name: str
    type: str
    default: Any = None
    """Of a required property; a nullable one has none here."""

    @property
    def nullable(self) -> bool:
        return self.default is None

    def text(self, renamed_from: str = "") -> str:
        literal = json.dumps(self.default, ensure_ascii=False)
        rest = "?" if self.nullable else f" @default({literal})"
        return f"{self.name}: {self.type}{rest}" + (f' @rename_from("{renamed_from}")' if renamed_from else "")


@dataclass
class Type:
    """`rows` by id. Rows of an edge type have `src` and `dst`."""

    name: str
    properties: list[Property] = field(default_factory=list)
    source: str = ""
    target: str = ""
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def is_edge(self) -> bool:
        return bool(self.source)

    def text(self, renames: dict[str, str], type_renamed_from: str = "") -> str:
        key = "" if self.is_edge else "name: String @key  "
        body = key + "  ".join(p.text(renames.get(p.name, "")) for p in self.properties)
        ends = f": {self.source} -> {self.target}" if self.is_edge else ""
        renamed = f' @rename_from("{type_renamed_from}")' if type_renamed_from else ""
        return f"{'edge' if self.is_edge else 'node'} {self.name}{ends}{renamed} {{ {body} }}"

    def image(self, given: Row) -> Row:
        """The whole row: what is given, else the default, else nothing."""
        return {p.name: given.get(p.name, p.default) for p in self.properties}


@dataclass
class State:
    types: dict[str, Type]
    parent: str | None = None

    def copy(self) -> State:
        return copy.deepcopy(self)

    @property
    def nodes(self) -> list[Type]:
        return [t for t in self.types.values() if not t.is_edge]

    @property
    def edges(self) -> list[Type]:
        return [t for t in self.types.values() if t.is_edge]

    def text(self, *, renames: dict[str, str] | None = None, of: str = "", type_from: str = "") -> str:
        """The schema, with the renames of one type."""
        return "\n".join(
            t.text(renames or {} if t.name == of else {}, type_from if t.name == of else "")
            for t in self.types.values()
        )

    def logical(self) -> dict[str, list[str]]:
        """What two equal states have in common: rows as sorted texts, edges without their generated ids."""
        return {
            t.name: sorted(
                json.dumps(row if t.is_edge else {"id": key, **row}, sort_keys=True) for key, row in t.rows.items()
            )
            for t in self.types.values()
        }


def initial() -> State:
    types = [
        Type("Person", [Property("age", "I32"), Property("nick", "String")]),
        Type("City", [Property("size", "I64")]),
        Type("Lives", [Property("since", "I32")], "Person", "City"),
        Type("Knows", [], "Person", "Person"),
    ]
    return State({t.name: t for t in types})


# ---- what operations do ----------------------------------------------------------------------------------------------


def after(branches: dict[str, State], operation: Operation) -> dict[str, State]:
    """The branches after an operation; Refused if it must not happen."""
    changed = dict(branches)
    match operation["op"]:
        case "create_branch":
            if operation["name"] in branches:
                raise Refused("branch_exists")
            if operation["from"] not in branches:
                raise Refused("branch_not_found")
            changed[operation["name"]] = branches[operation["from"]].copy()
            changed[operation["name"]].parent = operation["from"]
        case "delete_branch":
            if operation["name"] not in branches:
                raise Refused("branch_not_found")
            if operation["name"] == "main" or any(s.parent == operation["name"] for s in branches.values()):
                raise Refused("branch_in_use")
            del changed[operation["name"]]
        case kind:
            if operation["branch"] not in branches:
                raise Refused("branch_not_found")
            state = branches[operation["branch"]].copy()
            changed[operation["branch"]] = state
            if kind == "schema":
                change_schema(state, operation["change"])
            else:
                write(state, operation["statements"])
    return changed


def write(state: State, statements: list[dict[str, Any]]) -> None:
    numbers = itertools.count()
    for statement in statements:
        t = state.types[statement["type"]]
        match statement["do"]:
            case "delete":
                delete(state, t, statement["ids"])
            case "update":
                for key in statement["ids"]:
                    if key in t.rows:
                        t.rows[key] = {**t.rows[key], **statement["set"]}
            case "link":
                for row in statement["rows"]:
                    ends = {"src": row["from"], "dst": row["to"]}
                    t.rows[f"new-{next(numbers)}"] = {**ends, **t.image(row)}
            case put:
                for row in statement["rows"]:
                    if put == "insert" and row["name"] in t.rows:
                        raise Refused("key_conflict")
                    t.rows[row["name"]] = {"name": row["name"], **t.image(row)}
    for edge in state.edges:
        for row in edge.rows.values():
            if row["src"] not in state.types[edge.source].rows or row["dst"] not in state.types[edge.target].rows:
                raise Refused("constraint_violation")


def delete(state: State, t: Type, ids: list[str]) -> None:
    """Nodes take their edges along. A node that is not there takes none: an edge to it is a mistake and stays one."""
    gone = [key for key in ids if t.rows.pop(key, None) is not None]
    for edge in () if t.is_edge else state.edges:
        for end, type_name in (("src", edge.source), ("dst", edge.target)):
            if type_name == t.name:
                edge.rows = {key: row for key, row in edge.rows.items() if row[end] not in gone}


def change_schema(state: State, change: dict[str, Any]) -> None:
    match change["what"]:
        case "add_property":
            added = Property(**change["property"])
            t = state.types[change["type"]]
            t.properties.append(added)
            for row in t.rows.values():
                row[added.name] = added.default
        case "drop_property":
            t = state.types[change["type"]]
            t.properties = [p for p in t.properties if p.name != change["name"]]
            for row in t.rows.values():
                del row[change["name"]]
        case "rename_property":
            t = state.types[change["type"]]
            for p in t.properties:
                p.name = change["to"] if p.name == change["name"] else p.name
            for row in t.rows.values():
                row[change["to"]] = row.pop(change["name"])
        case "add_type":
            state.types[change["name"]] = Type(change["name"], [], change["source"], change["target"])
        case "drop_type":
            del state.types[change["name"]]
        case "rename_type":
            renamed = {change["to"] if name == change["type"] else name: t for name, t in state.types.items()}
            renamed[change["to"]].name = change["to"]
            for edge in renamed.values():
                edge.source = change["to"] if edge.source == change["type"] else edge.source
                edge.target = change["to"] if edge.target == change["type"] else edge.target
            state.types = renamed


def schema_text(state: State, change: dict[str, Any]) -> str:
    """The schema after a change, in the words that a user would write."""
    changed = state.copy()
    change_schema(changed, change)
    if change["what"] == "rename_property":
        return changed.text(renames={change["to"]: change["name"]}, of=change["type"])
    if change["what"] == "rename_type":
        return changed.text(of=change["to"], type_from=change["type"])
    return changed.text()
