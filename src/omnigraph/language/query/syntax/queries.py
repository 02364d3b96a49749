"""From the parser's tree to queries with places; no rule that needs a schema is checked yet.

1. file        queries, each with parameters, annotations and a body; no name twice
2. body        the sections of a read, sorted; or statements
3. clauses     a word between two bare variables is an edge, unless the left one is a parameter: then an operator
4. expressions literals decoded, nesting bounded by DEPTH_MAX so that code that walks the tree may recurse

Raises QuerySyntaxError for everything that is not part of the language.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from omnigraph.language.query.syntax.expressions import Expressions
from omnigraph.language.query.syntax.tree import (
    Assignment,
    Binding,
    Block,
    Clause,
    Constant,
    Delete,
    EdgeWord,
    Filter,
    Insert,
    Merge,
    OrderItem,
    Parameter,
    Projection,
    Query,
    QueryAnnotation,
    QueryFile,
    QueryText,
    Read,
    Returning,
    Statement,
    Traversal,
    Update,
    Variable,
)
from omnigraph.language.schema.model import SCALARS, VECTOR_DIMENSION_MAX, PropertyType
from omnigraph.language.schema.source import did_you_mean
from omnigraph.language.schema.syntax.declarations import TYPE_WORDS, place_of

if TYPE_CHECKING:
    from omnigraph.language.lalr import Token, Tree

RESERVED_PARAMETER = "__nanograph_now"
SECTION_ORDER = ("return", "having", "order", "limit", "offset")
BLOCK_DEPTH_MAX = 16
BLOCK_CLAUSES_MAX = 1000


def read_file(tree: Tree, text: QueryText) -> QueryFile:
    queries: list[Query] = []
    seen: dict[str, int] = {}
    for child in tree.children:
        query = _query(child, text)
        if query.name in seen:
            detail = f"The query {query.name} stands in this file twice, first on line {seen[query.name]}."
            raise text.refuse(query.place, detail)
        seen[query.name] = query.place.line
        queries.append(query)
    return QueryFile(tuple(queries), text)


def _query(tree: Tree, text: QueryText) -> Query:
    name = tree.children[1]
    parameters: tuple[Parameter, ...] = ()
    annotations: list[QueryAnnotation] = []
    bodies: list[Tree] = []
    for child in tree.children[2:]:
        if child.data == "parameters":
            parameters = _parameters(child, text)
        elif child.data == "annotation":
            annotations.append(_annotation(child, text, annotations))
        else:
            bodies.append(child)
    reader = _Body(text, frozenset(p.name for p in parameters))
    body = reader.read(bodies[0]) if bodies[0].data == "read" else tuple(reader.statement(b) for b in bodies)
    return Query(str(name), parameters, tuple(annotations), body, text, place_of(name))


# ---- heads -----------------------------------------------------------------------------------------------------------


def _parameters(tree: Tree, text: QueryText) -> tuple[Parameter, ...]:
    parameters: dict[str, Parameter] = {}
    for child in tree.children:
        token, type_tree, *nullable = child.children
        name, place = str(token)[1:], place_of(token)
        if name == RESERVED_PARAMETER or name == "_":
            raise text.refuse(place, f"The parameter name ${name} is reserved.")
        if name in parameters:
            raise text.refuse(place, f"The parameter ${name} is declared twice.")
        parameters[name] = Parameter(name, _type(type_tree, text), bool(nullable), place)
    return tuple(parameters.values())


def _type(tree: Tree, text: QueryText) -> PropertyType:
    tokens = tree.children
    if tree.data == "vector":
        size = tokens[1]
        if not size.isdigit() or len(size.lstrip("0")) > 10 or not 1 <= int(size) <= VECTOR_DIMENSION_MAX:
            detail = f"The length of a vector is a whole number from 1 to {VECTOR_DIMENSION_MAX}, not {size}."
            raise text.refuse(place_of(size), detail)
        return PropertyType("Vector", dimension=int(size))
    word = tokens[-1]
    if word not in SCALARS:
        suggested = TYPE_WORDS.get(word.lower())
        hint = f" Did you mean {suggested}?" if suggested else did_you_mean(word, [*SCALARS, "Vector"])
        if word == "enum":
            hint = " A parameter for an enum is a String."
        raise text.refuse(place_of(word), f"There is no parameter type {word}.{hint}")
    if tree.data == "base":
        return PropertyType(str(word))
    if word == "Blob":
        raise text.refuse(place_of(word), "A list can't hold a Blob.")
    return PropertyType("List", item=str(word))


def _annotation(tree: Tree, text: QueryText, before: Sequence[QueryAnnotation]) -> QueryAnnotation:
    token, *rest = tree.children
    name, place = str(token)[1:], place_of(token)
    literal = Expressions(text, frozenset()).read(rest[0]) if rest else None
    value = literal.value if isinstance(literal, Constant) else None
    if any(a.name == name for a in before):
        raise text.refuse(place, f"@{name} stands here twice.")
    if name in ("description", "instruction") and not (isinstance(value, str) and value.strip()):
        raise text.refuse(place, f'@{name} needs a text, as in @{name}("…").')
    return QueryAnnotation(name, value, place)


# ---- bodies ----------------------------------------------------------------------------------------------------------


class _Body:
    def __init__(self, text: QueryText, parameters: frozenset[str]) -> None:
        self.text = text
        self.parameters = parameters
        self.expressions = Expressions(text, parameters)

    def read(self, tree: Tree) -> Read:
        word, block, *sections = tree.children
        match = self.clauses(block, "match")
        parts: dict[str, Tree] = {}
        for section in sections:
            name, place = str(section.data), place_of(section.children[0])
            if name in parts:
                raise self.text.refuse(place, f"There are two sections {name}.")
            later = [other for other in parts if SECTION_ORDER.index(other) > SECTION_ORDER.index(name)]
            if later and {name, *later} != {"limit", "offset"}:
                raise self.text.refuse(place, f"The section {name} stands before {later[0]}.")
            parts[name] = section
        if "return" not in parts:
            raise self.text.refuse(place_of(word), "This query has no return section.")
        returned = parts["return"].children[1:]
        distinct = _is_token(returned[0])
        return Read(
            match,
            tuple(self.projection(p) for p in returned[distinct:]),
            distinct,
            tuple(self.expressions.read(e) for e in parts["having"].children[1:]) if "having" in parts else (),
            tuple(self._order_item(o) for o in parts["order"].children[1:]) if "order" in parts else (),
            self._count(parts.get("limit")),
            self._count(parts.get("offset")),
            place_of(word),
        )

    def projection(self, tree: Any) -> Projection:
        value, *alias = tree.children
        expression = self.expressions.read(value)
        return Projection(expression, str(alias[0]) if alias else None, expression.place)

    def _order_item(self, tree: Any) -> OrderItem:
        value, *direction = tree.children
        expression = self.expressions.read(value)
        word = cast('Literal["asc", "desc"]', str(direction[0])) if direction else None
        return OrderItem(expression, word, expression.place)

    def _count(self, section: Tree | None) -> Constant | Variable | None:
        if section is None:
            return None
        token = section.children[1]
        if token.type == "VARIABLE":
            return Variable(str(token)[1:], place_of(token))
        if not token.isdigit() or len(token) > 18:
            raise self.text.refuse(place_of(token), f"{section.data} takes a whole number, not {token}.")
        return Constant(int(token), place_of(token))

    # ---- clauses

    def clauses(self, tree: Tree, where: str, depth: int = 0) -> tuple[Clause, ...]:
        brace, *clauses = tree.children
        if depth > BLOCK_DEPTH_MAX:
            raise self.text.refuse(place_of(brace), f"Blocks are nested more than {BLOCK_DEPTH_MAX} deep.")
        if not clauses:
            raise self.text.refuse(place_of(brace), f"The block of {where} is empty.")
        if len(clauses) > BLOCK_CLAUSES_MAX:
            detail = f"The block of {where} has {len(clauses):,} clauses, and a block at most {BLOCK_CLAUSES_MAX:,}."
            raise self.text.refuse(place_of(brace), detail)
        return tuple(self._clause(child, depth) for child in clauses)

    def _clause(self, tree: Tree, depth: int) -> Clause:
        kind, children = str(tree.data), tree.children
        if kind == "filter":
            return self._filter(children[0])
        if kind == "binding":
            variable, type_name, *rest = children
            return Binding(
                self._variable(variable),
                self._type_name(type_name, binding=True),
                self.assignments(rest[0]) if rest else (),
                place_of(type_name),
            )
        if kind in ("absent", "optional"):
            word: Literal["not", "optional"] = "not" if kind == "absent" else "optional"
            return Block(word, self.clauses(children[1], word, depth + 1), place_of(children[0]))
        if kind == "edge_binding":
            source, edge, edges, target = children
            return self._traversal(source, edges, target, edge=self._variable(edge))
        if kind == "shortest":
            return self._traversal(*children[1:], shortest=True)
        path = self._variable(children[1])
        shortest = children[2].type == "SHORTEST"
        return self._traversal(*children[3 if shortest else 2 :], path=path, shortest=shortest)

    def _filter(self, tree: Any) -> Clause:
        """A condition; or a traversal, which the grammar reads as a word between two operands."""
        if tree.data in ("word_operator", "undirected"):
            left, right = tree.children[0], tree.children[-1]
            is_bare = left.data == right.data == "variable"
            if is_bare and not (tree.data == "word_operator" and str(left.children[0])[1:] in self.parameters):
                middle = tree.children[1:-1] if tree.data == "undirected" else tree.children[1].children
                words = [t for t in middle if _is_token(t)]
                bounds = next((t for t in middle if not _is_token(t)), None)
                return Traversal(
                    self._variable(left.children[0]),
                    self._edge_words(words),
                    self._variable(right.children[0]),
                    None if bounds is None else self.expressions.bounds(bounds),
                    tree.data == "undirected",
                    place=place_of(words[0]),
                )
        condition = self.expressions.read(tree)
        return Filter(condition, condition.place)

    def _traversal(self, source: Token, edges: Any, target: Token, **more: Any) -> Traversal:
        bounds, words, undirected = None, [], False
        for child in edges.children:
            if _is_token(child):
                words.append(child)
            elif child.data == "bounds":
                bounds = self.expressions.bounds(child)
            else:
                words, undirected = list(child.children), child.data == "either"
        return Traversal(
            self._variable(source),
            self._edge_words(words),
            self._variable(target),
            bounds,
            undirected,
            place=place_of(words[0]),
            **more,
        )

    def _edge_words(self, tokens: Sequence[Token]) -> tuple[EdgeWord, ...]:
        for token in tokens:
            if "A" <= token[0] <= "Z":
                expected = token[0].lower() + token[1:]
                detail = f"In a query the name of an edge starts with a lower-case letter: {expected}, not {token}."
                raise self.text.refuse(place_of(token), detail)
        return tuple(EdgeWord(str(t), place_of(t)) for t in tokens)

    def _variable(self, token: Token) -> Variable:
        return Variable(str(token)[1:], place_of(token))

    def _type_name(self, token: Token, *, binding: bool = False) -> str:
        if not "A" <= token[0] <= "Z":
            edge = f" An edge is bound between two variables, as in $a $e:{token} $b." if binding else ""
            raise self.text.refuse(place_of(token), f"A type name starts with an upper-case letter, not {token}.{edge}")
        return str(token)

    # ---- statements

    def assignments(self, tree: Tree) -> tuple[Assignment, ...]:
        assignments = []
        for child in tree.children:
            key, value = child.children
            assignments.append(Assignment(str(key), self.expressions.read(value), place_of(key)))
        return tuple(assignments)

    def statement(self, tree: Tree) -> Statement:
        kind, children = str(tree.data), tree.children
        place, type_name = place_of(children[1]), self._type_name(children[1])
        returning = self._returning(children[-1]) if children[-1].data == "returning" else None
        rest = children[2 : len(children) - (returning is not None)]
        if kind == "delete":
            return Delete(type_name, self.expressions.read(rest[0]), returning, place)
        values = self.assignments(rest[0])
        if kind == "update":
            return Update(type_name, values, self.expressions.read(rest[1]), returning, place)
        if kind == "merge":
            return Merge(type_name, values, self.assignments(rest[1]) if len(rest) > 1 else (), returning, place)
        match = self.clauses(rest[2], "match") if len(rest) > 1 else None
        return Insert(type_name, values, match, returning, place)

    def _returning(self, tree: Any) -> Returning:
        word, *items = tree.children
        projections = () if _is_token(items[0]) else tuple(self.projection(p) for p in items)
        return Returning(projections, place_of(word))


def _is_token(child: Any) -> bool:
    return isinstance(child, str)
