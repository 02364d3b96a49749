"""Completion in the shell: what may stand at the end of what was typed so far. Pure.

1. words     the text as tokens; nothing is offered inside of a string or a comment
2. types     of variables, from the text: `$p: Person` says it, and an edge tells the types of its ends
3. offer     by what stands before the last word: after `$p.` its properties, after `$p:` types, after `$p` edges and
             operators, in the braces behind a type its properties, else keywords, functions and variables

It guesses and never fails: text that is not a query yet is what it is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from omnigraph.cli.shell.text import BODIES, Token, tokens_of
from omnigraph.language.query.check.functions import AGGREGATES, SCALARS
from omnigraph.language.query.check.ranking import RANKS, SEARCHES
from omnigraph.language.query.syntax.tree import TEXT_OPERATORS
from omnigraph.language.schema.model import Property, Schema

KEYWORDS = (
    *("query", *BODIES, "return", "having", "order", "limit", "offset", "not", "optional", "path", "shortest"),
    *("set", "where", "returning", "from", "distinct", "as", "asc", "desc", "and", "or", "in", "is", "null"),
    *("true", "false"),
)
OPERATORS = ("in", "is", "not", *TEXT_OPERATORS, "and", "or", "as", "asc", "desc")
FUNCTIONS = (*AGGREGATES, *SCALARS, *SEARCHES, *RANKS)
Types = dict[str, frozenset[str]]
"""Variables, with their dollar, to the names of the types that they may have."""


@dataclass(frozen=True)
class Offer:
    text: str
    kind: str


@dataclass(frozen=True)
class Offers:
    """`typed` is the beginning of the word that each offer replaces."""

    typed: str
    offers: tuple[Offer, ...] = ()


@dataclass(frozen=True)
class Known:
    """What can be named. `commands` are those of the shell, each with the words that may follow it."""

    schema: Schema
    commands: dict[str, tuple[str, ...]]


def complete(text: str, known: Known) -> Offers:
    """What may stand at the end of `text`."""
    tokens = [t for t in tokens_of(text) if t.kind != "comment" or t.end == len(text)]
    if tokens and tokens[-1].kind in ("unclosed", "comment"):
        return Offers("")
    at_word = bool(tokens) and tokens[-1].kind in ("word", "variable", "system")
    typed = tokens[-1].text if at_word else ""
    words = [t for t in tokens if t.kind != "space"]
    before = words[:-1] if at_word else words
    if before and before[0].text == ":":
        name = _command_name(text, before)
        if name is None:
            return _of(text.strip()[1:], "command", known.commands)
        if name != "explain":
            argument = text.split(None, 1)[1] if len(text.split(None, 1)) > 1 else ""
            return _of(argument, name, known.commands.get(name, ()))
        before = before[2:]
    return _chosen(typed, _query_offers(before, typed, known.schema))


def _command_name(text: str, before: Sequence[Token]) -> str | None:
    """None while the name itself is being typed."""
    parts = text.strip()[1:].split(None, 1)
    return parts[0] if parts and (len(parts) > 1 or text[-1:].isspace()) else None


def _of(typed: str, kind: str, names: Iterable[str]) -> Offers:
    return _chosen(typed, [Offer(n, kind) for n in names])


def _chosen(typed: str, offers: Iterable[Offer]) -> Offers:
    """Those that begin as it was typed, in any case, once each."""
    fitting = {o.text: o for o in offers if o.text.lower().startswith(typed.lower()) and o.text != typed}
    return Offers(typed, tuple(fitting.values()))


def _query_offers(before: Sequence[Token], typed: str, schema: Schema) -> list[Offer]:
    last = before[-1].text if before else ""
    earlier = before[-2] if len(before) > 1 else None
    types = variable_types(before, schema)
    if last == "." and earlier is not None and earlier.kind == "variable":
        return _properties(types.get(earlier.text, frozenset()), schema, system=True)
    if typed.startswith("$"):
        return [Offer(v, "variable") for v in _variables(before)]
    if typed.startswith("@"):
        return [Offer(n, "annotation") for n in ("@description", "@instruction")]
    if last == ":" and earlier is not None and earlier.kind == "variable":
        return _after_colon(before, schema)
    if last in ("|", "<") or (last == "(" and earlier is not None and earlier.text == ":"):
        return _edges(schema)
    if before and before[-1].kind == "variable":
        return [*_edges(schema), *(Offer(o, "operator") for o in OPERATORS)]
    if last in ("insert", "update", "delete", "merge"):
        return [Offer(t.name, t.kind) for t in schema.types()]
    inside = _type_inside(before, schema)
    own = _properties(frozenset({inside}), schema, system=False) if inside else []
    words = [Offer(k, "keyword") for k in KEYWORDS] + [Offer(f, "function") for f in FUNCTIONS]
    return [*own, *words, *(Offer(v, "variable") for v in _variables(before))]


def _after_colon(before: Sequence[Token], schema: Schema) -> list[Offer]:
    """`$p:` is followed by a type, `$a $e:` by an edge, and a parameter's colon by a type of values."""
    third = before[-3] if len(before) > 2 else None
    if third is not None and third.kind == "variable":
        return _edges(schema)
    if before[0].text == "query" and not any(t.text == "{" for t in before):
        scalars = ("String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "Blob", "Vector")
        return [Offer(s, "type") for s in scalars]
    return [Offer(n.name, "node") for n in schema.nodes] + [Offer(i.name, "interface") for i in schema.interfaces]


def edge_word(name: str) -> str:
    """The name of an edge as queries write it."""
    return name[:1].lower() + name[1:]


def _edges(schema: Schema) -> list[Offer]:
    return [Offer(edge_word(e.name), "edge") for e in schema.edges]


def _variables(before: Sequence[Token]) -> list[str]:
    return list(dict.fromkeys(t.text for t in before if t.kind == "variable" and len(t.text) > 1))


def _properties(types: frozenset[str], schema: Schema, *, system: bool) -> list[Offer]:
    found: dict[str, Offer] = {}
    interfaces = {i.name: i.properties for i in schema.interfaces}
    for name in sorted(types):
        declared: Sequence[Property] = ()
        if name in schema.edge:
            declared = schema.edge[name].properties
            found.update({end: Offer(end, "end") for end in ("from", "to")})
        elif name in schema.node:
            declared = schema.node[name].properties
        else:
            declared = interfaces.get(name, ())
        found.update({p.name: Offer(p.name, f"{p.type}{'?' if p.nullable else ''}") for p in declared})
    own = list(found.values())
    return [*own, Offer("id", "system"), Offer("@type", "system")] if system and types else own


# ---- types of variables ----------------------------------------------------------------------------------------------


def variable_types(tokens: Sequence[Token], schema: Schema) -> Types:
    """The variables that a text binds, with the types that can be seen, none of a path; parameters are not in it."""
    known: Types = {}
    for i, t in enumerate(tokens[:-2]):
        if t.text == "path" and tokens[i + 1].kind == "variable" and tokens[i + 2].text == "=":
            known[tokens[i + 1].text] = frozenset()
        if t.kind == "variable" and tokens[i + 1].text == ":" and _is_type(tokens[i + 2].text, schema):
            known.setdefault(t.text, frozenset({tokens[i + 2].text}))
    steps = [s for i in range(len(tokens)) if (s := _step(tokens, i, schema)) is not None]
    for _ in range(len(steps) + 1):
        before = dict(known)
        for source, edges, target, bound in steps:
            if bound is not None:
                known[bound] = frozenset(edges)
            _spread(known, source, edges, target, schema)
        if known == before:
            break
    return known


def _is_type(name: str, schema: Schema) -> bool:
    return name in schema.node or any(i.name == name for i in schema.interfaces)


Step = tuple[str, list[str], str, str | None]


def _step(tokens: Sequence[Token], at: int, schema: Schema) -> Step | None:
    """`$a knows $b`, `$a <knows|likes>{1,3} $b`, `$a $e:knows $b` that begins here."""
    if tokens[at].kind != "variable":
        return None
    i, bound = at + 1, None
    if i + 1 < len(tokens) and tokens[i].kind == "variable" and tokens[i + 1].text == ":":
        bound, i = tokens[i].text, i + 2
    by_word = {edge_word(e.name).lower(): e.name for e in schema.edges}
    edges = []
    while i < len(tokens) and (tokens[i].kind == "word" or tokens[i].text in ("|", "<", ">", "(", ")")):
        if tokens[i].kind == "word":
            if tokens[i].text.lower() not in by_word:
                return None
            edges.append(by_word[tokens[i].text.lower()])
        i += 1
    if i < len(tokens) and tokens[i].text == "{":
        while i < len(tokens) and tokens[i].text != "}":
            i += 1
        i += 1
    if not edges or i >= len(tokens) or tokens[i].kind != "variable":
        return None
    return tokens[at].text, edges, tokens[i].text, bound


def _spread(known: Types, source: str, edges: Sequence[str], target: str, schema: Schema) -> None:
    """From the types of one end to those of the other, along the edge or, where only that fits, against it."""
    declared = [schema.edge[e] for e in edges]
    ahead = [(e.source, e.target) for e in declared]
    starts = source not in known or any(_meets(known[source], s, schema) for s, _ in ahead)
    ends = target not in known or any(_meets(known[target], t, schema) for _, t in ahead)
    if not (starts and ends):
        ahead = [(t, s) for s, t in ahead]
    known.setdefault(source, frozenset(s for s, _ in ahead))
    known.setdefault(target, frozenset(t for _, t in ahead))


def _meets(types: frozenset[str], name: str, schema: Schema) -> bool:
    return name in types or any(i in types for i in schema.node[name].implements)


# ---- where the cursor is ---------------------------------------------------------------------------------------------


def _type_inside(before: Sequence[Token], schema: Schema) -> str | None:
    """The type whose properties have no dollar here: in `$p: Person { … }`, and in what a statement says of its row."""
    statement = max((i for i, t in enumerate(before) if t.text in ("insert", "update", "delete", "merge")), default=-1)
    opened = [i for i in _open_braces(before) if i > statement]
    if opened:
        brace = opened[-1]
        head = before[brace - 1].text if brace else ""
        if _is_type(head, schema) or head in schema.edge:
            return head
        if head not in ("set", "returning"):
            return None
    elif "where" not in (t.text for t in before[statement + 1 :]):
        return None
    named = before[statement + 1].text if 0 <= statement < len(before) - 1 else ""
    return named if named in schema.node or named in schema.edge else None


def _open_braces(before: Sequence[Token]) -> list[int]:
    opened: list[int] = []
    for i, t in enumerate(before):
        if t.text == "{":
            opened.append(i)
        elif t.text == "}" and opened:
            opened.pop()
    return opened
