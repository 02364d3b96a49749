"""Random mutations against an oracle of dictionaries, compared after every query: rows, counts, what is returned.

Seeds are fixed, and OMNIGRAPH_FUZZ_SEED=<seed> runs another one; a failure names its seed and the query.
"""

from __future__ import annotations

import copy
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import errors

SCHEMA = """
node A { k: I64 @key  n: I64?  s: String?  u: String?  @unique(u)  @range(n, -20..60) }
node B { t: String? }
edge E: A -> A @card(0..4) { w: I64? }
edge F: A -> B { w: I64? }
"""
SEEDS = (1, 2) if "OMNIGRAPH_FUZZ_SEED" not in os.environ else (int(os.environ["OMNIGRAPH_FUZZ_SEED"]),)
QUERIES = 22
KEYS = range(8)
TEXTS = ("x", "xy", "", "Ω'\"", "y")
ENDS = {"E": ("A", "A"), "F": ("A", "B")}
COLUMNS = {"A": ("k", "n", "s", "u"), "B": ("t",), "E": ("from", "to", "w"), "F": ("from", "to", "w")}

Row = dict[str, Any]
Three = bool | None
Condition = tuple[str, Callable[[Row], Three]]
Value = tuple[str, Callable[[Row], Any]]


class Refused(Exception):
    pass


@dataclass
class Oracle:
    """What the graph shall hold: per type rows by id; ids that begin with ? stand for made ones."""

    types: dict[str, dict[str, Row]] = field(default_factory=lambda: {"A": {}, "B": {}, "E": {}, "F": {}})
    made: int = 0

    def insert(self, name: str, row_id: str | None, row: Row) -> str:
        if row_id is None:
            self.made += 1
            row_id = f"?{self.made}"
        elif name != "A" and row_id in self.types[name]:
            raise Refused("conflict")
        self.types[name][row_id] = {c: row[c] for c in COLUMNS[name]}
        return row_id

    def delete(self, name: str, ids: list[str]) -> None:
        for row_id in ids:
            del self.types[name][row_id]
        for edge, (source, target) in ENDS.items():
            for end, node in (("from", source), ("to", target)):
                if node == name:
                    kept = {i: r for i, r in self.types[edge].items() if r[end] not in ids}
                    self.types[edge] = kept

    def validate(self) -> None:
        nodes = self.types["A"]
        held = Counter(r["u"] for r in nodes.values() if r["u"] is not None)
        if any(c > 1 for c in held.values()) or any(not -20 <= (r["n"] or 0) <= 60 for r in nodes.values()):
            raise Refused("rule")
        for edge, (source, target) in ENDS.items():
            for r in self.types[edge].values():
                if r["from"] not in self.types[source] or r["to"] not in self.types[target]:
                    raise Refused("endpoint")
        if any(c > 4 for c in Counter(r["from"] for r in self.types["E"].values()).values()):
            raise Refused("cardinality")


# ---- three-valued logic, by hand -------------------------------------------------------------------------------------


def all_of(found: list[Three]) -> Three:
    return False if False in found else None if None in found else True


def any_of(found: list[Three]) -> Three:
    return True if True in found else None if None in found else False


def lit(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


class Maker:
    """Statements as text, beside what they do to the oracle and what they return."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.explicit = 0

    def condition(self, name: str, depth: int = 0) -> Condition:
        r = self.random
        roll = r.random()
        if depth < 2 and roll < 0.35:
            parts = [self.condition(name, depth + 1) for _ in range(2)]
            word, join = r.choice((("and", all_of), ("or", any_of)))
            text = f" {word} ".join(f"({t})" for t, _ in parts)
            return text, lambda row: join([f(row) for _, f in parts])
        if depth < 2 and roll < 0.5:
            text, inner = self.condition(name, depth + 1)
            return f"not ({text})", lambda row: None if inner(row) is None else not inner(row)
        if roll < 0.53:
            return r.choice((("true", lambda row: True), ("false", lambda row: False)))
        column = r.choice(COLUMNS[name])
        if roll < 0.62 and column not in ("k", "from", "to"):
            return f"{column} is null", lambda row: row[column] is None
        return self.number(column) if column in ("k", "n", "w") else self.text(column)

    def number(self, column: str) -> Condition:
        r = self.random
        add, value = r.randint(-2, 2), r.choice((r.randint(0, 8), r.randint(0, 8) + 0.5))
        word = r.choice(("=", "!=", "<", "<=", ">", ">="))
        compare = {
            "=": lambda a: a == value,
            "!=": lambda a: a != value,
            "<": lambda a: a < value,
            "<=": lambda a: a <= value,
            ">": lambda a: a > value,
            ">=": lambda a: a >= value,
        }[word]
        left = f"{column} + ({add})" if r.random() < 0.3 else column
        shift = add if left != column else 0
        return f"{left} {word} {value}", lambda row: None if row[column] is None else compare(row[column] + shift)

    def text(self, column: str) -> Condition:
        r = self.random
        known = [str(k) for k in KEYS] if column in ("from", "to") else list(TEXTS)
        some = r.sample(known, 2)
        if r.random() < 0.5:
            return (
                f"{column} in [{lit(some[0])}, {lit(some[1])}]",
                lambda row: None if row[column] is None else (row[column] in some),
            )
        start = some[0][:1]
        return (
            f"{column} starts_with {lit(start)}",
            lambda row: None if row[column] is None else row[column].startswith(start),
        )

    def value(self, column: str) -> Value:
        """A new value of a property, from the row's own ones."""
        r = self.random
        if column in ("n", "w"):
            add = r.randint(-1, 3)
            return r.choice(
                (
                    (f"{column} + ({add})", lambda row: None if row[column] is None else row[column] + add),
                    (f"coalesce({column}, 0) + ({add})", lambda row: (row[column] or 0) + add),
                    (str(add + 1), lambda row: add + 1),
                    ("null", lambda row: None),
                )
            )
        if column == "u":
            text = f"u{r.randint(0, 30)}"
            return r.choice(((lit(text), lambda row: text), ("null", lambda row: None)))
        text = r.choice(TEXTS)
        return r.choice(
            (
                (lit(text), lambda row: text),
                (f"{column} + {lit(text)}", lambda row: None if row[column] is None else row[column] + text),
            )
        )

    def values(self, name: str) -> dict[str, Value]:
        free = [c for c in COLUMNS[name] if c not in ("k", "from", "to")]
        chosen = {c: self.value(c) for c in self.random.sample(free, self.random.randint(1, len(free)))}
        if name in ENDS and self.random.random() < 0.1:
            end = str(self.random.choice(KEYS))
            chosen["from"] = (lit(end), lambda row: end)
        return chosen

    # ---- statements: (text without returning, type, what it does: affected ids; before: its rows as they were)

    def statement(self) -> tuple[str, str, Callable[[Oracle], list[str]], bool]:
        make = self.random.choice(
            (self.put, self.put, self.edge, self.edge, self.change, self.change, self.remove, self.merge, self.derive)
        )
        return make()

    def put(self) -> tuple[str, str, Callable[[Oracle], list[str]], bool]:
        r = self.random
        if r.random() < 0.25:
            row_id, text = f"b{r.randint(0, 40)}", r.choice(TEXTS)
            return (
                f"insert B {{ id: {lit(row_id)}, t: {lit(text)} }}",
                "B",
                lambda o: [o.insert("B", row_id, {"t": text})],
                False,
            )
        row = {"k": r.choice(KEYS), "n": None, "s": None, "u": None}
        given = {"n": r.randint(0, 9), "s": r.choice(TEXTS), "u": f"u{r.randint(0, 30)}"}
        row.update({c: given[c] for c in r.sample(sorted(given), r.randint(0, 3))})
        shown = ", ".join(f"{c}: {lit(v)}" for c, v in row.items() if v is not None)
        return f"insert A {{ {shown} }}", "A", lambda o: [o.insert("A", str(row["k"]), row)], False

    def edge(self) -> tuple[str, str, Callable[[Oracle], list[str]], bool]:
        r = self.random
        name = r.choice(("E", "E", "F"))
        self.explicit += 1
        row_id = f"{name}{r.randint(0, 3) if r.random() < 0.1 else 100 + self.explicit}"
        to = str(r.choice(KEYS)) if name == "E" else f"b{r.randint(0, 6)}"
        row = {"from": str(r.choice(KEYS)), "to": to, "w": r.choice((None, r.randint(0, 9)))}
        shown = ", ".join(f"{c}: {lit(v)}" for c, v in row.items() if v is not None)
        return (
            f"insert {name} {{ id: {lit(row_id)}, {shown} }}",
            name,
            lambda o: [o.insert(name, row_id, row)],
            False,
        )

    def change(self) -> tuple[str, str, Callable[[Oracle], list[str]], bool]:
        name = self.random.choice(("A", "A", "E", "F", "B"))
        where, holds = self.condition(name)
        values = self.values(name)

        def do(o: Oracle) -> list[str]:
            found = [i for i, row in o.types[name].items() if holds(row) is True]
            for i in found:
                old = o.types[name][i]
                o.types[name][i] = {**old, **{c: f(old) for c, (_, f) in values.items()}}
            return found

        shown = ", ".join(f"{c}: {t}" for c, (t, _) in values.items())
        return f"update {name} set {{ {shown} }} where {where}", name, do, False

    def remove(self) -> tuple[str, str, Callable[[Oracle], list[str]], bool]:
        name = self.random.choice(("A", "E", "F", "B"))
        where, holds = self.condition(name)
        narrow, also = self.number("k" if name == "A" else "w") if name != "B" else ("true", lambda row: True)

        def do(o: Oracle) -> list[str]:
            found = [i for i, row in o.types[name].items() if all_of([holds(row), also(row)]) is True]
            o.delete(name, found)
            return found

        return f"delete {name} where ({where}) and {narrow}", name, do, True

    def merge(self) -> tuple[str, str, Callable[[Oracle], list[str]], bool]:
        r = self.random
        name = r.choice(("A", "A", "E"))
        values = {c: v for c, v in self.values(name).items() if c != "from"}
        keys: Row = {"k": r.choice(KEYS)} if name == "A" else {"from": str(r.choice(KEYS)), "to": str(r.choice(KEYS))}

        def do(o: Oracle) -> list[str]:
            found = [i for i, row in o.types[name].items() if all(row[c] == v for c, v in keys.items())]
            nothing = dict.fromkeys(COLUMNS[name])
            if not found:
                new = {**nothing, **keys, **{c: f(nothing) for c, (_, f) in values.items()}}
                return [o.insert(name, str(keys["k"]) if name == "A" else None, new)]
            for i in found:
                old = o.types[name][i]
                o.types[name][i] = {**old, **{c: f(old) for c, (_, f) in values.items()}}
            return found

        shown = ", ".join(f"{c}: {t}" for c, (t, _) in values.items())
        found_by = ", ".join(f"{c}: {lit(v)}" for c, v in keys.items())
        return f"merge {name} {{ {found_by} }}" + (f" set {{ {shown} }}" if shown else ""), name, do, False

    def derive(self) -> tuple[str, str, Callable[[Oracle], list[str]], bool]:
        """insert … from match, of several shapes."""
        r = self.random
        low, key = r.randint(0, 9), r.choice(KEYS)
        shape = r.randint(0, 5)

        def pairs(o: Oracle) -> list[tuple[str, str]]:
            nodes = o.types["A"]
            found = {(e["from"], e["to"]) for e in o.types["E"].values()}
            return sorted(p for p in found if p[0] in nodes and p[1] in nodes)

        def rows(o: Oracle) -> list[tuple[str | None, Row]]:
            a = o.types["A"]
            if shape == 0:
                wanted = [
                    (i, j) for i in a for j in a if a[i]["k"] == key and a[j]["n"] is not None and a[j]["n"] > low
                ]
                return [(None, {"from": i, "to": j, "w": a[j]["n"]}) for i, j in wanted]
            if shape == 1:
                hops = [(x, z) for x, y in pairs(o) for y2, z in pairs(o) if y == y2 and a[x]["k"] == key]
                return [(None, {"from": x, "to": z, "w": low}) for x, z in hops]
            if shape == 2:
                there = [e for e in o.types["E"].values() if e["from"] in a and e["to"] in a]
                strong = [e for e in there if e["w"] is not None and e["w"] > low]
                return [(None, {"from": e["to"], "to": e["from"], "w": e["w"] + 1}) for e in strong]
            if shape == 3:
                alone = [i for i in a if i not in {x for x, _ in pairs(o)} and a[i]["k"] > low - 3]
                return [(None, {"from": i, "to": i, "w": None}) for i in alone]
            named = {"k": lambda x: x["n"], "s": lambda x: "same" if shape == 4 else x["s"]}
            found = [{c: f(x) for c, f in named.items()} for x in a.values() if x["n"] is not None and 0 <= x["n"] <= 7]
            return [(str(x["k"]), {**x, "n": None, "u": None}) for x in found]

        def do(o: Oracle) -> list[str]:
            name = "E" if shape < 4 else "A"
            found = rows(o)
            if name == "A":
                by_key: dict[str | None, Row] = {}
                for i, row in found:
                    if by_key.setdefault(i, row) != row:
                        raise Refused("key")
                found = list(by_key.items())
            return [o.insert(name, i, row) for i, row in found]

        texts = (
            f"insert E {{ from: $a, to: $b, w: $b.n }} from match {{ $a: A {{ k: {key} }}  $b: A  $b.n > {low} }}",
            f"insert E {{ from: $a, to: $c, w: {low} }} from match {{ $a e $b  $b e $c  $a.k = {key} }}",
            f"insert E {{ from: $b, to: $a, w: $e.w + 1 }} from match {{ $a $e:e $b  $e.w > {low} }}",
            f"insert E {{ from: $a, to: $a }} from match {{ $a: A  not {{ $a e $_ }}  $a.k > {low - 3} }}",
            'insert A { k: $a.n, s: "same" } from match { $a: A  $a.n >= 0 and $a.n <= 7 }',
            "insert A { k: $a.n, s: $a.s } from match { $a: A  $a.n >= 0 and $a.n <= 7 }",
        )
        return texts[shape], "E" if shape < 4 else "A", do, False


# ---- comparing -------------------------------------------------------------------------------------------------------


def stored(graph: og.Graph) -> dict[str, dict[str, Row]]:
    found: dict[str, dict[str, Row]] = {}
    for name, columns in COLUMNS.items():
        table = graph.nodes(name) if name not in ENDS else graph.edges(name)
        rows = table.rename_columns([{"src": "from", "dst": "to"}.get(c, c) for c in table.column_names]).to_pylist()
        found[name] = {r["id"]: {c: r[c] for c in columns} for r in rows}
    return found


def shape_of(rows: dict[str, Row], known: set[str]) -> tuple[dict[str, Row], Counter[tuple[Any, ...]]]:
    """Rows by id, where the oracle knows the id; the others as a bag."""
    named = {i: r for i, r in rows.items() if i in known}
    return named, Counter(tuple(r.values()) for i, r in rows.items() if i not in known)


def counts(before: dict[str, dict[str, Row]], after: dict[str, dict[str, Row]]) -> tuple[dict[str, int], ...]:
    keys = {name: f"{'edge' if name in ENDS else 'node'}:{name}" for name in COLUMNS}

    def count(of: Callable[[dict[str, Row], dict[str, Row]], int]) -> dict[str, int]:
        found = {keys[name]: of(before[name], after[name]) for name in COLUMNS}
        return {k: n for k, n in found.items() if n}

    return (
        count(lambda b, a: len(a.keys() - b.keys())),
        count(lambda b, a: sum(b[i] != a[i] for i in b.keys() & a.keys())),
        count(lambda b, a: len(b.keys() - a.keys())),
    )


def expected(oracle: Oracle, statements: list[Any]) -> tuple[Oracle, str, Counter[tuple[Any, ...]]] | None:
    """The state afterwards, the type of the last statement and the rows that it returns; None if it is refused."""
    trial = copy.deepcopy(oracle)
    returned: Counter[tuple[Any, ...]] = Counter()
    name = ""
    try:
        for _, name, do, is_delete in statements:
            before = {i: dict(r) for i, r in trial.types[name].items()}
            affected = do(trial)
            rows = before if is_delete else trial.types[name]
            returned = Counter(tuple(rows[i].values()) for i in dict.fromkeys(affected))
        trial.validate()
    except Refused:
        return None
    return trial, name, returned


def outcome_of(graph: og.Graph, text: str) -> tuple[Any, str]:
    """(what was done, or None, and why it was refused)."""
    try:
        return graph.mutate(text), ""
    except (errors.ConstraintViolation, errors.KeyConflict) as error:
        return None, str(error)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_mutations_do_what_the_oracle_says(tmp_path: Path, seed: int) -> None:
    graph = og.init(tmp_path / "graph", SCHEMA)
    maker, oracle = Maker(seed), Oracle()
    done = refused = 0
    for k in KEYS:
        oracle.insert("A", str(k), {"k": k, "n": k % 5, "s": None, "u": None})
        oracle.insert("B", f"b{k}", {"t": None})
    rows = [{"k": k, "n": k % 5} for k in KEYS]
    graph.insert({"A": rows, "B": [{"id": f"b{k}"} for k in KEYS]})
    for turn in range(QUERIES):
        statements = [maker.statement() for _ in range(maker.random.randint(1, 4))]
        text = "query q() {\n  " + "\n  ".join(s[0] for s in statements)
        wanted = expected(oracle, statements)
        text += " returning { " + ", ".join(COLUMNS[statements[-1][1]]) + " }\n}"
        where = f"seed {seed}, query {turn}:\n{text}"
        before = graph.snapshot().commit
        result, why = outcome_of(graph, text)
        if result is None:
            assert wanted is None, f"{where}\n{why}"
            assert graph.snapshot().commit == before, where
            refused += 1
            continue
        assert wanted is not None, f"{where}\nwas not refused"
        trial, _, returned = wanted
        assert (result.inserted, result.updated, result.deleted) == counts(oracle.types, trial.types), where
        assert (result.commit is None) == (oracle.types == trial.types), where
        assert Counter(tuple(r.values()) for r in result) == returned, where
        found = stored(graph)
        for name in COLUMNS:
            known = {i for i in trial.types[name] if not i.startswith("?")}
            assert shape_of(found[name], known) == shape_of(trial.types[name], known), f"{name}, {where}"
        oracle = trial
        done += 1
    print(f"seed {seed}: {done} done, {refused} refused")
    assert done >= QUERIES // 3, f"seed {seed} refuses nearly everything, which proves little"
