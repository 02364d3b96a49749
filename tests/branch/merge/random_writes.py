"""Random writes and schema changes, each with the state that it has to leave."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import omnigraph as og
from tests.branch.merge.oracle import Row, State
from tests.branch.merge.oracle_schema import Property, Schema, Type

KEYS = [f"p{i}" for i in range(8)]
Run = Callable[[og.Graph, str], tuple[str | None, State]]


@dataclass(frozen=True)
class Write:
    """`run` performs it on a branch, and returns the commit, if there is one, and the expected state."""

    text: str
    run: Run


def schema_text(schema: Schema, renamed: dict[str, str] | None = None) -> str:
    """`renamed` maps new names of properties to old ones."""
    lines = []
    for t in schema.values():
        parts = []
        for p in t.properties:
            rename = f' @rename_from("{renamed[p.name]}")' if renamed and p.name in renamed else ""
            parts.append(f"{p.name}: {p.text}{rename}")
        body = "{ " + "  ".join(parts) + " }"
        if t.ends is None:
            lines.append(f"node {t.name} {body}")
        else:
            card = "" if t.edges_max is None else f" @card(0..{t.edges_max})"
            lines.append(f"edge {t.name}: {t.ends[0]} -> {t.ends[1]}{card} {body}")
    return "\n".join(lines)


def _copied(state: State) -> dict[str, dict[str, Row]]:
    return {name: dict(rows) for name, rows in state.rows.items()}


class Writes:
    """Chooses writes. Property ids and names of new elements come from one counter, so that they are never reused."""

    def __init__(self, rng: random.Random, folder: Path, *, bulk_rows: int) -> None:
        self.rng = rng
        self.folder = folder
        self.bulk_rows = bulk_rows
        self.last_id = 0

    def _property(self, name: str, text: str, kind: str = "int", **options: Any) -> Property:
        self.last_id += 1
        return Property(frozenset({self.last_id}), name, text, kind=kind, **options)

    # ---- the first state ---------------------------------------------------------------------------------------------

    def first_state(self) -> State:
        schema = self._schema
        return State(schema, {name: {} for name in schema})

    def first_schema_text(self) -> str:
        p = self._property
        person = (
            p("name", "String @key", "key", is_fixed=True),
            p("age", "I64?"),
            p("nick", "String?", "text"),
            p("email", "String? @unique", "email", is_fixed=True),
            p("place", "Vector(3)?", "vector"),
            p("photo", "Blob?", "blob"),
        )
        self._schema: Schema = {
            "Person": Type("Person", person, key="name", unique="email"),
            "Note": Type("Note", (p("text", "String", "note", is_fixed=True), p("n", "I64?"))),
            "Knows": Type("Knows", (p("w", "I64?"), p("since", "I64?")), ends=("Person", "Person")),
            "Owns": Type("Owns", (p("w", "I64?"),), ends=("Person", "Note"), edges_max=2),
        }
        return schema_text(self._schema)

    # ---- values ------------------------------------------------------------------------------------------------------

    def value(self, p: Property) -> Any:
        rng = self.rng
        if p.kind == "vector":
            return rng.choice([None, [1.0, 2.0, 3.0], [0.0, 0.5, -1.0], [3.0, 3.0, 3.0]])
        if p.kind == "blob":
            return rng.choice([None, b"", b"x", b"large " * 20_000 if rng.random() < 0.02 else b"y"])
        if p.kind == "text":
            value = rng.choice([None, "x", "y", "z"])
        elif p.kind == "note":
            value = rng.choice(["t", "u"])
        else:
            value = rng.choice([None, 1, 2, 3])
        return p.default if value is None else value

    def some_values(self, t: Type) -> dict[str, Any]:
        """Values of a few properties without rules."""
        free = [p for p in t.properties if p.kind in ("int", "text", "vector", "blob")]
        chosen = self.rng.sample(free, min(len(free), self.rng.randint(1, 2)))
        return {p.name: self.value(p) for p in chosen}

    def _email(self, rows: dict[str, Row], entity_id: str) -> str | None:
        used = {row["email"] for i, row in rows.items() if i != entity_id}
        email = self.rng.choice([None, None, "a@", "b@", "c@"])
        return None if email in used else email

    def _node(self, t: Type, rows: dict[str, Row], key: str) -> Row:
        row: Row = {}
        for p in t.properties:
            row[p.name] = key if p.kind == "key" else self._email(rows, key) if p.kind == "email" else self.value(p)
        return row

    # ---- writes ------------------------------------------------------------------------------------------------------

    def choose(self, state: State) -> Write:
        rng = self.rng
        people, knows, notes = (state.rows[name] for name in ("Person", "Knows", "Note"))
        keyed = [t for t in state.schema.values() if t.key is not None]
        options: list[tuple[float, Callable[[], Write]]] = [
            (4, lambda: self.upsert_nodes(state, rng.choice(keyed))),
            (0.5, lambda: self.bulk_insert(state)),
            (3 if people else 0, lambda: self.update_nodes(state, rng.choice(keyed))),
            (1.5 if people else 0, lambda: self.delete_nodes(state)),
            (2 if people else 0, lambda: self.insert_knows(state)),
            (2.5 if knows else 0, lambda: self.change_edge(state, rng.choice(sorted(knows)))),
            (1.5 if people else 0, lambda: self.insert_note(state)),
            (1 if notes else 0, lambda: self.change_note(state, rng.choice(sorted(notes)))),
            (0.7 if people else 0, lambda: self.overwrite(state)),
        ]
        return rng.choices([write for _, write in options], [weight for weight, _ in options])[0]()

    def upsert_nodes(self, state: State, t: Type) -> Write:
        rows = _copied(state)
        keys = self.rng.sample(KEYS, self.rng.randint(1, 5))
        for key in keys:
            rows[t.name][key] = self._node(t, rows[t.name], key)
        changed = [rows[t.name][key] for key in keys]
        text = f"upsert {t.name} {keys}"
        return _write(text, State(state.schema, rows), lambda g, b: g.upsert({t.name: changed}, branch=b))

    def bulk_insert(self, state: State) -> Write:
        rows = _copied(state)
        t = state.schema["Person"]
        start = self.rng.randrange(3) * 1_000
        values = {p.name: self.value(p) for p in t.properties if p.kind not in ("key", "email")}
        keys = [f"bulk{start + i}" for i in range(self.bulk_rows)]
        inserted = {k: {**values, "name": k, "email": None} for k in keys}
        rows["Person"] |= inserted
        upserted = list(inserted.values())
        text = f"bulk upsert of {len(keys)} rows from bulk{start}"
        return _write(text, State(state.schema, rows), lambda g, b: g.upsert({"Person": upserted}, branch=b))

    def update_nodes(self, state: State, t: Type) -> Write:
        rows = _copied(state)
        ids = [i for i in rows[t.name] if self.rng.random() < 0.3][:200]
        if not ids:
            return self.upsert_nodes(state, t)
        values = self.some_values(t)
        if not values:
            return self.upsert_nodes(state, t)
        for i in ids:
            rows[t.name][i] = {**rows[t.name][i], **values}
        text = f"update {t.name} {values} of {ids[:12]}"
        return _write(text, State(state.schema, rows), lambda g, b: g.update(t.name, values, ids=ids, branch=b))

    def delete_nodes(self, state: State) -> Write:
        rows = _copied(state)
        people = sorted(rows["Person"])
        few = self.rng.sample(people, min(len(people), self.rng.randint(1, 2)))
        ids = people[:: self.rng.randint(2, 4)] if self.rng.random() < 0.1 else few
        self._remove(state.schema, rows, "Person", ids)
        text = f"delete Person {ids[:12]}"
        return _write(text, State(state.schema, rows), lambda g, b: g.delete({"Person": ids}, branch=b))

    def _remove(self, schema: Schema, rows: dict[str, dict[str, Row]], node: str, ids: list[str]) -> None:
        """With the edges of the nodes."""
        removed = set(ids)
        rows[node] = {i: row for i, row in rows[node].items() if i not in removed}
        for t in schema.values():
            if t.ends is None:
                continue
            columns = [c for c, end in zip(("src", "dst"), t.ends, strict=True) if end == node]
            rows[t.name] = {i: r for i, r in rows[t.name].items() if not any(r[c] in removed for c in columns)}

    def insert_knows(self, state: State) -> Write:
        people = sorted(state.rows["Person"])
        t = state.schema["Knows"]
        edges = []
        for _ in range(self.rng.randint(1, 3)):
            ends = {"src": self.rng.choice(people), "dst": self.rng.choice(people)}
            edges.append({**ends, **{p.name: self.value(p) for p in t.properties}})
        return self._insert(state, t, edges, f"insert Knows {edges}")

    def _insert(self, state: State, t: Type, inserted: list[Row], text: str) -> Write:
        """Rows whose ids the product makes."""

        def run(graph: og.Graph, branch: str) -> tuple[str | None, State]:
            result = graph.insert({t.name: [_spelled(row) for row in inserted]}, branch=branch)
            rows = _copied(state)
            rows[t.name] |= dict(zip(result.ids[t.name], inserted, strict=True))
            assert result.commit is not None
            return result.commit.id, State(state.schema, rows)

        return Write(text, run)

    def change(self, state: State, type_name: str, entity_id: str) -> Write:
        """A change of one person or one edge."""
        if type_name == "Knows":
            return self.change_edge(state, entity_id)
        rows = _copied(state)
        t = state.schema[type_name]
        values = self.some_values(t)
        if self.rng.random() < 0.2 or not values:
            self._remove(state.schema, rows, type_name, [entity_id])
            text = f"delete {type_name} {entity_id}"
            return _write(text, State(state.schema, rows), lambda g, b: g.delete({type_name: [entity_id]}, branch=b))
        rows[type_name][entity_id] = {**rows[type_name][entity_id], **values}
        return _write(
            f"update {type_name} {entity_id}: {values}",
            State(state.schema, rows),
            lambda g, b: g.update(type_name, values, ids=[entity_id], branch=b),
        )

    def change_edge(self, state: State, edge_id: str) -> Write:
        rows = _copied(state)
        t = state.schema["Knows"]
        choice = self.rng.random()
        if choice < 0.3:
            del rows["Knows"][edge_id]
            return _write(
                f"delete Knows {edge_id}",
                State(state.schema, rows),
                lambda g, b: g.delete({"Knows": [edge_id]}, branch=b),
            )
        values = self.some_values(t)
        if choice < 0.7 or not values:
            people = sorted(rows["Person"])
            ends = self.rng.choice([("src",), ("dst",), ("src", "dst")])
            values = {c: self.rng.choice(people) for c in ends}
        row = rows["Knows"][edge_id] = {**rows["Knows"][edge_id], **values}
        text = f"change Knows {edge_id}: {values}"
        if self.rng.random() < 0.5:
            spelled = {"id": edge_id, **_spelled(row)}
            return _write(text, State(state.schema, rows), lambda g, b: g.upsert({"Knows": [spelled]}, branch=b))
        spelled = _spelled(values)
        return _write(text, State(state.schema, rows), lambda g, b: g.update("Knows", spelled, ids=[edge_id], branch=b))

    def insert_note(self, state: State) -> Write:
        notes, owns = state.rows["Note"], state.rows["Owns"]
        full = {row["src"] for row in owns.values() if sum(r["src"] == row["src"] for r in owns.values()) >= 2}
        owners = sorted(set(state.rows["Person"]) - full)
        if notes and owners and self.rng.random() < 0.7:
            t = state.schema["Owns"]
            ends = {"src": self.rng.choice(owners[:4]), "dst": self.rng.choice(sorted(notes))}
            edge = {**ends, **{p.name: self.value(p) for p in t.properties}}
            return self._insert(state, t, [edge], f"insert Owns {edge}")
        t = state.schema["Note"]
        row = {p.name: self.value(p) for p in t.properties}
        return self._insert(state, t, [row], f"insert Note {row}")

    def change_note(self, state: State, note_id: str) -> Write:
        rows = _copied(state)
        if self.rng.random() < 0.4:
            self._remove(state.schema, rows, "Note", [note_id])
            text = f"delete Note {note_id}"
            return _write(text, State(state.schema, rows), lambda g, b: g.delete({"Note": [note_id]}, branch=b))
        p = state.schema["Note"].properties[0]
        values = {p.name: self.value(p), **self.some_values(state.schema["Note"])}
        rows["Note"][note_id] = {**rows["Note"][note_id], **values}
        return _write(
            f"update Note {note_id}: {values}",
            State(state.schema, rows),
            lambda g, b: g.update("Note", values, ids=[note_id], branch=b),
        )

    def overwrite(self, state: State) -> Write:
        """A load that replaces all rows of a type, a few of them with other values."""
        rows = _copied(state)
        t = state.schema["Person"]
        for i, row in rows["Person"].items():
            if self.rng.random() < 0.2:
                rows["Person"][i] = {**row, **self.some_values(t)}
        file = self.folder / "overwrite.jsonl"
        lines = [json.dumps({"type": "Person", "data": _json(row)}) for row in rows["Person"].values()]

        def run(graph: og.Graph, branch: str) -> Any:
            file.write_text("\n".join(lines))
            return graph.load(file, mode="overwrite", branch=branch, engine="local")

        return _write(f"overwrite Person with {len(lines)} rows", State(state.schema, rows), run)

    # ---- schema changes ----------------------------------------------------------------------------------------------

    def choose_schema_change(self, state: State) -> Write:
        rng = self.rng
        t = state.schema[rng.choice(sorted(state.schema))]
        free = [p for p in t.properties if not p.is_fixed]
        choice = rng.random()
        if choice < 0.25 and free:
            return self._rename(state, t, rng.choice(free))
        if choice < 0.45 and free:
            return self._drop(state, t, rng.choice(free))
        if choice < 0.6:
            self.last_id += 1
            name = f"Type{self.last_id}"
            properties = (self._property("title", "String @key", "key", is_fixed=True), self._property("size", "I64?"))
            return self._evolve(state, Type(name, properties, key="title"), f"add type {name}")
        return self._add(state, t)

    def _add(self, state: State, t: Type) -> Write:
        """Half of the names are the same on every branch: properties that both sides add are one."""
        shared = self.rng.random() < 0.5
        name = self.rng.choice(["shared", "common"]) if shared else f"extra{self.last_id + 1}"
        if any(p.name == name for p in t.properties):
            name, shared = f"extra{self.last_id + 1}", False
        has_default = name == "common" or (not shared and self.rng.random() < 0.5)
        text, default = ("I64? @default(7)", 7) if has_default else ("I64?", None)
        p = self._property(name, text, default=default, is_fixed=shared)
        return self._evolve(state, replace(t, properties=(*t.properties, p)), f"add {t.name}.{name}: {text}")

    def _rename(self, state: State, t: Type, p: Property) -> Write:
        self.last_id += 1
        new = replace(p, name=f"{p.name.partition('_')[0]}_{self.last_id}")
        properties = tuple(new if q is p else q for q in t.properties)
        text = f"rename {t.name}.{p.name} to {new.name}"
        return self._evolve(state, replace(t, properties=properties), text, {new.name: p.name})

    def _drop(self, state: State, t: Type, p: Property) -> Write:
        properties = tuple(q for q in t.properties if q is not p)
        return self._evolve(state, replace(t, properties=properties), f"drop {t.name}.{p.name}")

    def _evolve(self, state: State, t: Type, text: str, renamed: dict[str, str] | None = None) -> Write:
        schema = {**state.schema, t.name: t}
        rows = {**_copied(state), t.name: state.shaped(t)}
        others = {name: other for name, other in schema.items() if name != t.name}
        source = schema_text(others) + "\n" + schema_text({t.name: t}, renamed)
        return _write(text, State(schema, rows), lambda g, b: g.apply_schema(source, branch=b))


def _write(text: str, state: State, call: Callable[[og.Graph, str], Any]) -> Write:
    def run(graph: og.Graph, branch: str) -> tuple[str | None, State]:
        commit = call(graph, branch).commit
        return None if commit is None else commit.id, state

    return Write(text, run)


def _spelled(row: Row) -> Row:
    """Ends of an edge as a caller names them."""
    return {{"src": "from", "dst": "to"}.get(name, name): value for name, value in row.items()}


def _json(row: Row) -> Row:
    return {n: base64.b64encode(v).decode() if isinstance(v, bytes) else v for n, v in row.items()}
