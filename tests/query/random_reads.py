"""Random graphs and random read queries over one schema: small enough for the oracle, wide enough to meet all."""

from __future__ import annotations

import random
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

SCHEMA = """
interface Named { name: String }
node Person implements Named {
  slug: String @key
  age: I32? @index
  visits: I64?
  big: U64?
  height: F32?
  weight: F64?
  active: Bool?
  status: enum(open, busy, away)? @index
  born: Date?
  joined: DateTime?
  tags: [String]? @index
  scores: [I32]?
  bio: String? @index
  vec: Vector(2)?
}
node Company implements Named { slug: String @key  size: I64?  bio: String? @index  vec: Vector(2)? }
edge Knows: Person -> Person { since: Date?  weight: F64?  note: String? }
edge WorksWith: Person -> Person { weight: F64? }
edge WorksAt: Person -> Company { role: String? }
edge Owns: Company -> Company
"""
PARAMETERS = "$s: String, $i: I64, $f: F64?, $l: [String], $v: Vector(2), $d: Date, $t: DateTime, $b: Bool?, $h: I64"
NASTY = ["a", "b", "B", "", "O'Brien", 'x"y', "50%_off", "back\\slash", "ünï", "日本", "a\nb", "--", "`t`", "'; DROP"]
WORDS = ["kilo", "lima", "tango", "zulu", "oscar", "kilt"]
EDGES = [2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
LARGE = [*map(str, EDGES[:2]), "(-9007199254740993)", "18446744073709551615", "9007199254740992.0", "1e300", "$h"]
START = datetime(2024, 2, 28, 12, tzinfo=UTC)


def some(rng: random.Random, value: Any, nulls: float = 0.25) -> Any:
    return None if rng.random() < nulls else value


def bio(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(0, 5)))


def person(rng: random.Random, slug: str) -> dict[str, Any]:
    return {
        "slug": slug,
        "name": rng.choice(NASTY),
        "age": some(rng, rng.randint(-2, 3)),
        "visits": some(rng, rng.choice([0, 1, 2, 2**53 + 1, -(2**63), 2**63 - 1])),
        "big": some(rng, rng.choice([0, 1, 2**53, 2**63, 2**64 - 1])),
        "height": some(rng, rng.choice([0.0, -0.0, 0.1, 1.5, 2.0])),
        "weight": some(rng, rng.choice([0.0, -0.0, 0.25, 1.5, -2.75, 1e300])),
        "active": some(rng, rng.random() < 0.5),
        "status": some(rng, rng.choice(["open", "busy", "away"])),
        "born": some(rng, date(2024, 2, 27) + timedelta(days=rng.randint(0, 3))),
        "joined": some(rng, START + timedelta(hours=6 * rng.randint(0, 8))),
        "tags": some(rng, [rng.choice(NASTY[:5]) for _ in range(rng.randint(0, 3))]),
        "scores": some(rng, [rng.randint(0, 3) for _ in range(rng.randint(0, 3))]),
        "bio": some(rng, bio(rng)),
        "vec": some(rng, [float(rng.randint(-2, 2)), float(rng.randint(-2, 2))]),
    }


def company(rng: random.Random, slug: str) -> dict[str, Any]:
    vec = some(rng, [float(rng.randint(-2, 2)), 1.0])
    name = rng.choice(NASTY)
    return {"slug": slug, "name": name, "size": some(rng, rng.randint(0, 3)), "bio": some(rng, bio(rng)), "vec": vec}


def edges(rng: random.Random, sources: list[str], targets: list[str], count: int) -> list[dict[str, Any]]:
    if not sources or not targets:
        return []
    return [{"src": rng.choice(sources), "dst": rng.choice(targets)} for _ in range(count)]


def content(rng: random.Random, people: list[str], firms: list[str], *, new: str = "") -> dict[str, Any]:
    """Rows of a graph. `new`: the prefix of ids of people that come with the edges."""
    knows = edges(rng, people, people, rng.randint(0, 10))
    for e in knows:
        e |= {"since": some(rng, date(2024, 1, rng.randint(1, 3))), "weight": some(rng, rng.choice([0.5, 1.0, 2.0]))}
        e["note"] = some(rng, rng.choice(NASTY))
    works = edges(rng, people, firms, rng.randint(0, 6))
    for e in works:
        e["role"] = some(rng, rng.choice(["boss", "staff"]))
    with_ = edges(rng, people, people, rng.randint(0, 5))
    return {"Knows": knows, "WorksWith": with_, "WorksAt": works, "Owns": edges(rng, firms, firms, rng.randint(0, 3))}


def parameters(rng: random.Random) -> dict[str, Any]:
    return {
        "s": rng.choice([*NASTY, *WORDS, "p1"]),
        "i": rng.choice([0, 1, 2, 3]),
        "f": some(rng, rng.choice([0.0, 0.1, 1.5, 2.0])),
        "l": [rng.choice(NASTY) for _ in range(rng.randint(0, 3))],
        "v": [float(rng.randint(-2, 2)), float(rng.randint(1, 2))],
        "d": (date(2024, 2, 27) + timedelta(days=rng.randint(0, 3))).isoformat(),
        "t": (START + timedelta(hours=6 * rng.randint(0, 8))).isoformat(),
        "b": some(rng, True),
        "h": aside(rng).choice(EDGES),
    }


def aside(rng: random.Random) -> random.Random:
    """Draws that leave those of `rng` as they are, so that a seed gives what it gave before there were these."""
    return random.Random(repr(rng.getstate()[1][:4]) + str(rng.getstate()[1][-1]))


NUMBERS = {"Person": ["age", "visits", "big", "height", "weight"], "Company": ["size"], "Knows": ["weight"]}
TEXTS = {"Person": ["name", "slug", "bio", "status", "id"], "Company": ["name", "bio", "id"], "Knows": ["note", "id"]}
FOR_ALL = {"Person": ["name", "id", "bio", "slug"], "Company": ["name", "id", "bio", "slug"]}


class Maker:
    """`types` of variables: a node type, Named for either, an edge type."""

    def __init__(self, rng: random.Random, *, large: bool = False) -> None:
        self.rng = rng
        self.large = large
        self.types: dict[str, str] = {}
        self.paths: list[str] = []
        self.made = 0

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def fresh(self, kind: str, letter: str = "x") -> str:
        self.made += 1
        name = f"${letter}{self.made}"
        self.types[name] = kind
        return name

    def of(self, *kinds: str) -> str | None:
        known = [n for n, t in self.types.items() if t in kinds]
        return self.rng.choice(known) if known else None

    # ---- expressions

    def number(self, depth: int = 0) -> str:
        choice = self.rng.randrange(10 if depth < 2 else 5)
        holder = self.of(*NUMBERS)
        if choice < 3 and holder is not None:
            return f"{holder}.{self.rng.choice(NUMBERS[self.types[holder]])}"
        if choice == 3:
            return f"length({self.pick(*self.paths)})" if self.paths else f"length({self.text(depth + 1)})"
        if choice < 6:
            small = str(self.rng.choice([0, 1, 2, "(-1)", 2.5, 0.1, "$i", "$f"]))
            draws = aside(self.rng)
            return draws.choice(LARGE) if self.large and draws.random() < 0.25 else small
        if choice == 6:
            return f"coalesce({self.number(depth + 1)}, {self.number(depth + 1)})"
        if choice == 7:
            person = self.of("Person")
            return f"({person}.joined - {person}.born) / hours(1)" if person else "1"
        return f"({self.number(depth + 1)} {self.pick('+', '-', '*', '/')} {self.number(depth + 1)})"

    def text(self, depth: int = 0) -> str:
        choice = self.rng.randrange(7 if depth < 2 else 4)
        holder = self.of("Person", "Company", "Named", "Knows")
        if choice < 3 and holder is not None:
            kind = self.types[holder]
            return f"{holder}.{self.rng.choice(TEXTS.get(kind) or FOR_ALL['Person'])}"
        if choice == 3:
            return self.pick('"a"', "$s", '"O\'Brien"', '""', '"kilo lima"')
        if choice == 4:
            return f"{self.pick('lower', 'upper')}({self.text(depth + 1)})"
        return f"lower({self.text(depth + 1)} + {self.text(depth + 1)})"

    def condition(self, depth: int = 0) -> str:
        choice = self.rng.randrange(14 if depth < 2 else 10)
        compare = self.pick("=", "!=", "<", "<=", ">", ">=")
        person = self.of("Person")
        node = self.of("Person", "Company", "Named")
        if choice < 2:
            return f"{self.number(1)} {compare} {self.number(1)}"
        if choice == 2:
            word = self.pick("contains", "starts_with", "ends_with", "=", "!=", "<")
            return f"{self.text(1)} {word} {self.text(1)}"
        if choice == 3 and person:
            item = self.pick("age", "weight", "tags", "bio", "vec", "born", "scores")
            return f"{person}.{item} is {self.pick('', 'not ')}null"
        if choice == 4:
            items = self.pick("$l", "[]", '[$s, "a"]', f"[{self.text(1)}]")
            return f"{self.text(1)} {self.pick('', 'not ')}in {items}"
        if choice == 5 and person:
            date_ = self.pick("$d", "date($t)", '"2024-02-28"', 'date("2024-02-27") + days(1)', "$d - hours(1)")
            return self.pick(f"{person}.born {compare} {date_}", f"{person}.joined {compare} $t + minutes(90)")
        if choice == 6 and node:
            name = self.pick("search", "match_text", "fuzzy")
            words = " ".join(self.rng.choice([*WORDS, "kulo"]) for _ in range(self.rng.randint(1, 2)))
            return f'{name}({node}.bio, "{words}"{self.pick("", ", 2", ", 0") if name == "fuzzy" else ""})'
        if choice == 7 and person:
            return self.pick(
                f'{person}.tags contains "a"',
                f"{self.pick('1', '$i', '2.0')} in {person}.scores",
                f"{person}.age in [1, 2.0, 2.5, $i{', $h, 9007199254740993' if self.large else ''}]",
                f"{person}.height in [0.1, 0, $f{', $h, 9007199254740993' if self.large else ''}]",
                f"{person}.active",
                f'{person}.status {self.pick("=", "!=")} "busy"',
                f'{person}.name matches "^[a-z]$|%"',
                f"{person}.active = $b",
            )
        if choice == 8 and node and len(self.types) > 1:
            other = self.of("Person", "Company", "Named")
            return f"{node} {self.pick('=', '!=')} {other}"
        if choice == 10:
            return f"not ({self.condition(depth + 1)})"
        if choice > 10:
            joined = f" {self.pick('and', 'or')} ".join(self.condition(depth + 1) for _ in range(2))
            return f"({joined})"
        return f"{self.number(1)} {compare} {self.number(1)}"

    # ---- clauses

    def node(self, kind: str) -> str:
        known = self.of(kind)
        return known if known is not None and self.chance(0.35) else self.fresh(kind)

    def binding(self) -> str:
        kind = self.pick("Person", "Person", "Person", "Company", "Named")
        name = self.fresh(kind)
        values = self.pick('{ slug: "p1" }', "{ age: 1 }", "{ active: $b }") if kind == "Person" else ""
        return f"{name}: {kind} {values if self.chance(0.3) else ''}"

    def traversal(self) -> str:
        start = self.of("Person", "Company", "Named") or self.fresh("Person")
        kind = self.types[start]
        if kind == "Named":
            return f"{start}: Named"
        bounds = self.pick("", "", "", "{1,3}", "{2}", "{1,}", "{2,2}", "{2,4}")
        if kind == "Company":
            edge, target = self.pick("owns", "worksAt"), None
        else:
            edge, target = self.pick("knows", "knows", "worksWith", "knows|worksWith", "worksAt"), None
        end = {"owns": "Company", "worksAt": "Person" if kind == "Company" else "Company"}.get(edge, "Person")
        if edge == "worksAt":
            bounds = ""
        target = "$_" if self.chance(0.15) else self.node(end)
        undirected = edge != "worksAt" and self.chance(0.2)
        word = f"<{edge}>" if undirected else edge
        swap = kind == end and self.chance(0.3)
        left, right = (target, start) if swap else (start, target)
        form = self.rng.randrange(8)
        if form == 0 and not undirected:
            held = self.fresh({"knows": "Knows"}.get(edge, "Other"), "e")
            return f"{left} {held}:{f'({edge})' if '|' in edge else edge} {right}"
        if form == 1 and bounds != "{1,}":
            self.made += 1
            self.paths.append(f"$p{self.made}")
            return f"path $p{self.made} = {left} {word}{bounds} {right}"
        if form == 2:
            self.made += 1
            self.paths.append(f"$p{self.made}")
            return f"path $p{self.made} = shortest {left} {word}{bounds} {right}"
        return f"{left} {word}{bounds} {right}"

    def block(self, depth: int) -> str:
        word = self.pick("not", "optional")
        inner = Maker(self.rng, large=self.large)
        inner.types, inner.made, inner.paths = dict(self.types), self.made + 10 * (depth + 1), list(self.paths)
        clauses = []
        named = [n for n, t in self.types.items() if t == "Named"]
        if named and inner.chance(0.7):
            name, kind = self.rng.choice(named), self.pick("Person", "Company")
            clauses.append(f"{name}: {kind}")
            inner.types[name] = kind
        clauses.append(inner.traversal() if self.types else inner.binding())
        clauses += [inner.clause(depth + 1) for _ in range(self.rng.randint(0, 2))]
        self.made = inner.made
        if word == "optional":
            self.types, self.paths = inner.types | dict.fromkeys(named, "Named"), inner.paths
        return f"{word} {{ {' '.join(clauses)} }}"

    def clause(self, depth: int = 0) -> str:
        choice = self.rng.randrange(10)
        if choice < 4:
            return self.traversal()
        if choice == 4 and depth == 0 and len(self.types) < 2:
            return self.binding()
        if choice < 8 or depth > 1:
            return self.condition()
        return self.block(depth)

    # ---- results

    def score(self) -> str:
        node = self.of("Person", "Company", "Named") or "$x1"
        words = f'"{self.rng.choice(WORDS)} {self.rng.choice(WORDS)}"'
        text, vector = f"bm25({node}.bio, {words})", f"nearest({node}.vec, {self.pick('$v', '[1.0, 1.0]')})"
        return self.pick(text, vector, f"rrf({vector}, {text})", f"rrf({text}, {vector}, 1)")

    def column(self, i: int) -> str:
        choice = self.rng.randrange(10)
        node = self.of("Person", "Company", "Named") or "$x1"
        if choice == 0:
            return f"{self.condition(2)} as c{i}"
        if choice == 1:
            return f"{node} as c{i}"
        if choice == 2 and self.paths:
            return f"nodes({self.pick(*self.paths)}) as c{i}"
        if choice == 3 and self.of("Person"):
            return f"{self.of('Person')}.{self.pick('born', 'joined', 'tags', 'scores', 'active', 'vec')} as c{i}"
        return f"{self.pick(self.number(), self.text(), f'{node}.id', f'{node}.@type')} as c{i}"

    def aggregate(self, i: int) -> str:
        node = self.of("Person", "Company", "Named") or "$x1"
        distinct = self.pick("", "", "distinct ")
        if self.chance(0.3):
            return f"count({self.pick('*', distinct + node)}) as c{i}"
        name = self.pick("count", "sum", "avg", "min", "max", "collect")
        operand = self.number(1) if name in ("sum", "avg") or self.chance(0.5) else self.text(1)
        return f"{name}({distinct}{operand}) as c{i}"

    def declared(self, clauses: list[str]) -> list[str]:
        """The clauses with some of the ends of their traversals declared, too, which changes nothing.

        It draws on its own, so that a seed gives the query that it gave before there was this.
        """
        rng = random.Random(repr(clauses))
        outside = [c for c in clauses if not c.startswith(("not {", "optional {"))]
        for name in sorted(set(re.findall(r"\$x\d+", " ".join(outside)))):
            if self.types.get(name) in ("Person", "Company") and rng.random() < 0.4:
                clauses.insert(rng.randint(0, len(clauses)), f"{name}: {self.types[name]}")
        return clauses

    def query(self, *, declare: bool) -> str:
        clauses = [self.binding(), *(self.clause() for _ in range(self.rng.randint(0, 4)))]
        clauses = self.declared(clauses) if declare else clauses
        count = self.rng.randint(1, 4)
        if self.chance(0.35):
            columns = [self.aggregate(i) if self.chance(0.6) else self.column(i) for i in range(count)]
        else:
            columns = [self.column(i) for i in range(count)]
            if self.chance(0.25):
                columns.append(f"{self.score()} as c{count}")
        having = f"having {{ c0 {self.pick('>', '=', '!=')} {self.pick('1', '$i')} }}" if self.chance(0.1) else ""
        keys = [f"c{self.rng.randrange(count)}", self.number(1), self.text(1), self.score()]
        picked = self.rng.sample(keys, self.rng.randint(0, 2))
        order = f"order {{ {', '.join(k + self.pick('', ' desc') for k in picked)} }}" if picked else ""
        limit = f"limit {self.pick('0', '1', '3', '$i', '100')}" if self.chance(0.5) or "nearest" in order else ""
        if "rrf" in "".join(columns) and not limit:
            limit = "limit 5"
        offset = "offset 1" if self.chance(0.15) else ""
        word = "return distinct" if self.chance(0.2) else "return"
        body = f"match {{ {' '.join(clauses)} }} {word} {{ {', '.join(columns)} }} {having} {order} {limit} {offset}"
        return f"query q({PARAMETERS}) {{ {body} }}"


def random_read(rng: random.Random, *, declare: bool = True, large: bool = True) -> str:
    """`declare`, `large`: queries that older seeds were not found with."""
    return Maker(rng, large=large).query(declare=declare)
