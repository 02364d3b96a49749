"""Random queries over the shared schema: grammatical by construction, and mostly well-typed."""

from __future__ import annotations

import random

NUMBERS = ["age", "visits", "height", "weight"]
TEXTS = ["name", "slug", "bio", "status"]
OTHERS = [*["born", "joined", "active", "id", "@type"] * 3, "tags", "scores", "vec", "photo", "nmae"]
EDGES = [*["knows", "worksWith"] * 6, "worksAt", "worksAt", "locatedIn", "contains"]
TYPES = [*["Person"] * 12, "Company", "City", "Note", "Named"]
PARAMETERS = "$s: String, $i: I64, $f: F64?, $l: [String], $v: Vector(3), $d: Date, $t: DateTime, $b: Bool?"


class Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.variables: list[str] = []

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    def maybe(self, text: str, chance: float = 0.5) -> str:
        return text if self.rng.random() < chance else ""

    def variable(self) -> str:
        if self.variables and self.rng.random() < 0.8:
            return self.rng.choice(self.variables)
        name = f"$x{self.rng.randrange(6)}"
        self.variables.append(name)
        return name

    def known(self) -> str:
        return self.rng.choice(self.variables) if self.variables else "$x0"

    # ---- expressions

    def number(self, depth: int = 0) -> str:
        choice = self.rng.randrange(9 if depth < 3 else 4)
        if choice < 2:
            return f"{self.known()}.{self.rng.choice(NUMBERS)}"
        if choice == 2:
            return str(self.rng.choice([0, 1, "(-1)", 2.5, "(-0.25)", 10**18, "$i", "$f"]))
        if choice == 3:
            return f"length({self.text(depth + 1)})"
        if choice == 4:
            return f"coalesce({self.number(depth + 1)}, {self.number(depth + 1)})"
        if choice == 5:
            return "(now() - $t) / days(1)"
        return f"({self.number(depth + 1)} {self.pick('+', '-', '*', '/')} {self.number(depth + 1)})"

    def text(self, depth: int = 0) -> str:
        choice = self.rng.randrange(6 if depth < 3 else 3)
        if choice < 2:
            return f"{self.known()}.{self.rng.choice(TEXTS)}"
        if choice == 2:
            return self.pick('"a"', "$s", '"O\'Brien \\" \\\\ %_"', '""')
        if choice == 3:
            return f"{self.pick('lower', 'upper')}({self.text(depth + 1)})"
        return f"{self.text(depth + 1)} + {self.text(depth + 1)}"

    def condition(self, depth: int = 0) -> str:
        choice = self.rng.randrange(14 if depth < 3 else 9)
        compare = self.pick("=", "!=", "<", "<=", ">", ">=")
        if choice < 3:
            return f"{self.number(1)} {compare} {self.number(1)}"
        if choice == 3:
            return f"{self.text(1)} {self.pick('contains', 'starts_with', 'ends_with', '=', '!=')} {self.text(1)}"
        if choice == 4:
            return f"{self.known()}.{self.rng.choice([*NUMBERS, *TEXTS, *OTHERS])} is {self.maybe('not ')}null"
        if choice == 5:
            items = self.pick("$l", "[]", '[$s, "a"]')
            return f"{self.text(1)} {self.maybe('not ')}in {items}"
        if choice == 6:
            date = self.pick("$d", "date($t)", '"2024-01-01"', 'date("2020-02-02") + days(3)')
            return f"{self.known()}.born {compare} {date}"
        if choice == 7:
            name = self.pick("search", "match_text", "fuzzy")
            return f'{name}({self.known()}.{self.pick("bio", "name")}, "a")'
        if choice == 8:
            return f"{self.known()}.{self.rng.choice(OTHERS)} {compare} {self.pick('$s', '1', '$t', 'true', '$l')}"
        if choice == 9:
            return f"not ({self.condition(depth + 1)})"
        joined = f" {self.pick('and', 'or')} ".join(self.condition(depth + 1) for _ in range(self.rng.randint(2, 3)))
        return f"({joined})"

    # ---- clauses

    def clause(self, depth: int = 0) -> str:
        choice = self.rng.randrange(12 if depth < 2 else 10)
        if choice < 2:
            name = self.variable()
            values = self.pick(" { name: $s }", " { age: 3, active: $b }", "", "", "")
            return f"{name}: {self.rng.choice(TYPES)}{values}"
        if choice < 6:
            return self.traversal()
        if choice < 10:
            return self.condition()
        inner = Maker(self.rng)
        inner.variables = list(self.variables)
        body = " ".join(inner.clause(depth + 1) for _ in range(self.rng.randint(1, 3)))
        if choice == 11:
            self.variables = inner.variables
        return f"{'not' if choice == 10 else 'optional'} {{ {body} }}"

    def traversal(self) -> str:
        words = "|".join(dict.fromkeys(self.rng.choice(EDGES) for _ in range(self.rng.choice([1, 1, 1, 2]))))
        bounds = self.pick("", "", "{1,3}", "{2}", "{1,}", "{2,2}")
        source, target = self.variable(), self.pick(self.variable(), "$_")
        form = self.rng.randrange(6)
        if form == 0:
            return f"{source} <{words}>{bounds} {target}"
        if form == 1:
            return f"{source} $e{self.rng.randrange(9)}:({words}) {target}"
        if form == 2:
            return f"path $p{self.rng.randrange(9)} = {self.maybe('shortest ')}{source} {words}{bounds} {target}"
        if form == 3:
            return f"shortest {source} {words}{bounds} {target}"
        return f"{source} {words}{bounds} {target}"

    # ---- queries

    def projection(self, i: int) -> str:
        choice = self.rng.randrange(9)
        aggregate = self.pick("count", "sum", "avg", "min", "max", "collect")
        if choice == 0:
            return f"{aggregate}({self.maybe('distinct ', 0.3)}{self.pick(self.number(1), self.text(1))}) as c{i}"
        if choice == 1:
            return f"count({self.pick('*', self.known())}) as c{i}"
        if choice == 2:
            return f"{self.pick('bm25', 'nearest')}({self.known()}.{self.pick('bio', 'vec')}, $s) as c{i}"
        if choice == 3:
            return f"{self.condition(2)} as c{i}"
        if choice == 4:
            return f"{self.known()} as c{i}"
        if choice == 5:
            return f"{self.known()}.{self.rng.choice([*OTHERS, *NUMBERS, *TEXTS])} as c{i}"
        return f"{self.pick(self.number(), self.text())} as c{i}"

    def read(self) -> str:
        match = " ".join(
            [f"{self.variable()}: {self.rng.choice(TYPES)}", *(self.clause() for _ in range(self.rng.randint(0, 5)))]
        )
        columns = self.rng.randint(1, 4)
        returned = self.pick(", ", " ").join(self.projection(i) for i in range(columns))
        having = self.maybe(f" having {{ c{self.rng.randrange(columns)} {self.pick('>', '=')} {self.number(2)} }}", 0.2)
        order = self.pick(f"c{self.rng.randrange(columns)} desc", self.number(1), self.text(1), "nearest($x0.vec, $v)")
        tail = self.maybe(f" order {{ {order} }}") + self.maybe(" limit 5") + self.maybe(" offset $i", 0.2)
        return f"match {{ {match} }} return {self.maybe('distinct ', 0.2)}{{ {returned} }}{having}{tail}"

    def statement(self) -> str:
        self.variables = []
        choice = self.rng.randrange(6)
        where = self.pick(
            "slug = $s", "age is null or not active", "$i > 3 and age in [1, 2]", 'name matches "a+"', "nmae = 1"
        )
        values = self.pick(
            "name: $s, age: age + 1", "joined: now(), tags: $l", "vec: $v bio: null", "slug: $s", "weight: $f"
        )
        returning = self.pick("", "", "", " returning { id, name as n }", " returning { * }")
        if choice == 0:
            more = self.pick("age: 3", "born: $d", "xx: 1")
            return f"insert Person {{ slug: $s, name: {self.pick('$s', '$i')}, {more} }}{returning}"
        if choice == 1:
            match = f"$x0: Person $x0 {self.rng.choice(EDGES)} $x1"
            return f"insert Knows {{ from: $x0, to: $x1.id, weight: 1.5 }} from match {{ {match} }}"
        if choice == 2:
            return f"delete {self.rng.choice(['Person', 'Knows', 'Note'])} where {where}{returning}"
        if choice == 3:
            more = self.pick("age: 3", "slug: $s", "weight: $f")
            return f"merge Person {{ slug: $s }} set {{ name: $s, {more} }}{returning}"
        return f"update {self.rng.choice(['Person', 'Company', 'Knows'])} set {{ {values} }} where {where}{returning}"


def random_query(rng: random.Random) -> str:
    maker = Maker(rng)
    body = maker.read() if rng.random() < 0.8 else " ".join(maker.statement() for _ in range(rng.randint(1, 4)))
    return f"query q({PARAMETERS}) {{ {body} }}"
