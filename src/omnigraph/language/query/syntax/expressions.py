"""Expressions: from the parser's tree to operations, calls and literals.

`date("…")` and `datetime("…")` stay calls; everything else that is a literal is decoded here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from omnigraph.language.query.syntax.literals import BadLiteral, decode_number, decode_string
from omnigraph.language.query.syntax.tree import (
    WORD_OPERATORS,
    Access,
    Bounds,
    Call,
    Constant,
    Expression,
    Items,
    Name,
    Operation,
    QueryText,
    Variable,
)
from omnigraph.language.schema.source import Place, did_you_mean, quoted_list
from omnigraph.language.schema.syntax.declarations import place_of

if TYPE_CHECKING:
    from omnigraph.language.lalr import Token

DEPTH_MAX = 64
HOPS_MAX = 2**31 - 1
SYSTEM_FIELDS = ("@id", "@src", "@dst", "@type")


class Expressions:
    def __init__(self, text: QueryText, parameters: frozenset[str]) -> None:
        self.text = text
        self.parameters = parameters
        self._read: dict[str, Callable[[Any, list[Any], int], Expression]] = {
            "string": self._string,
            "number": self._number,
            "true": lambda tree, c, depth: Constant(True, place_of(c[0])),
            "false": lambda tree, c, depth: Constant(False, place_of(c[0])),
            "null": lambda tree, c, depth: Constant(None, place_of(c[0])),
            "variable": lambda tree, c, depth: Variable(str(c[0])[1:], place_of(c[0])),
            "property": self._access,
            "name": self._name,
            "call": self._call,
            "items": self._items,
            "group_of": lambda tree, c, depth: self.read(c[0], depth),
            "or": lambda tree, c, depth: self._operation("or", c, depth),
            "and": lambda tree, c, depth: self._operation("and", c, depth),
            "not": self._not,
            "compare": lambda tree, c, depth: self._operation(_operator(c[1]), [c[0], c[2]], depth, c[1]),
            "less": lambda tree, c, depth: self._operation("<", c, depth),
            "greater": lambda tree, c, depth: self._operation(">", c, depth),
            "is_null": lambda tree, c, depth: self._operation("is null", c[:1], depth),
            "is_not_null": lambda tree, c, depth: self._operation("is not null", c[:1], depth),
            "word_operator": self._word_operator,
            "undirected": self._undirected,
            "chain": self._chain,
            "negative": self._negative,
        }

    def read(self, tree: Any, depth: int = 0) -> Expression:
        if depth > DEPTH_MAX:
            raise self.text.refuse(self.place(tree), f"Expressions are nested more than {DEPTH_MAX} deep.")
        return self._read[tree.data](tree, tree.children, depth + 1)

    def place(self, tree: Any) -> Place:
        """The place of the first token of a tree, however deep it is."""
        while not isinstance(tree, str):
            tree = tree.children[0]
        return place_of(cast("Token", tree))

    def bounds(self, tree: Any) -> Bounds:
        numbers = [t for t in tree.children if t.type == "NUMBER"]
        for token in numbers:
            if not token.isdigit() or len(token) > 10 or int(token) > HOPS_MAX:
                raise self.text.refuse(place_of(token), f"The number of hops is a whole number, not {token}.")
        low = int(numbers[0])
        open_end = len(tree.children) == 2
        return Bounds(low, None if open_end else int(numbers[-1]), place_of(numbers[0]))

    # ---- atoms

    def _string(self, tree: Any, children: list[Any], depth: int) -> Constant:
        token = children[0]
        try:
            return Constant(decode_string(token), place_of(token))
        except BadLiteral as error:
            place = self.text.place_of(token.start + error.offset)
            raise self.text.refuse(place, str(error)) from None

    def _number(self, tree: Any, children: list[Any], depth: int) -> Constant:
        token = children[0]
        try:
            return Constant(decode_number(token), place_of(token))
        except BadLiteral as error:
            raise self.text.refuse(place_of(token), str(error)) from None

    def _access(self, tree: Any, children: list[Any], depth: int) -> Access:
        variable, name = children
        self._check_system(name)
        return Access(Variable(str(variable)[1:], place_of(variable)), str(name), place_of(name))

    def _name(self, tree: Any, children: list[Any], depth: int) -> Name:
        self._check_system(children[0])
        return Name(str(children[0]), place_of(children[0]))

    def _check_system(self, token: Token) -> None:
        if token[0] == "@" and token not in SYSTEM_FIELDS:
            raise self.text.refuse(place_of(token), f"There is no system field {token}; {quoted_list(SYSTEM_FIELDS)}.")

    def _call(self, tree: Any, children: list[Any], depth: int) -> Call:
        function, *arguments = children
        distinct = bool(arguments) and isinstance(arguments[0], str) and arguments[0] == "distinct"
        rest = arguments[1:] if distinct else arguments
        star = bool(rest) and isinstance(rest[0], str)
        read = () if star else tuple(self.read(a, depth) for a in rest)
        return Call(str(function), read, distinct, star, place_of(function))

    def _items(self, tree: Any, children: list[Any], depth: int) -> Items:
        return Items(tuple(self.read(c, depth) for c in children[1:]), place_of(children[0]))

    # ---- operations

    def _operation(self, operator: str, operands: list[Any], depth: int, token: Token | None = None) -> Operation:
        read = tuple(self.read(o, depth) for o in operands)
        return Operation(operator, read, read[0].place if token is None else place_of(token))

    def _not(self, tree: Any, children: list[Any], depth: int) -> Operation:
        return Operation("not", (self.read(children[1], depth),), place_of(children[0]))

    def _negative(self, tree: Any, children: list[Any], depth: int) -> Expression:
        operand = self.read(children[1], depth)
        if isinstance(operand, Constant) and type(operand.value) in (int, float) and str(operand.value)[0] != "-":
            value = -cast("int | float", operand.value)
            if value < -(2**63) and isinstance(value, int):
                raise self.text.refuse(place_of(children[0]), f"{value} does not fit into 64 bits.")
            return Constant(value, place_of(children[0]))
        return Operation("negative", (operand,), place_of(children[0]))

    def _chain(self, tree: Any, children: list[Any], depth: int) -> Expression:
        """`a - b + c` is `(a - b) + c`; every step nests one deeper."""
        if depth + len(children) // 2 > DEPTH_MAX:
            raise self.text.refuse(self.place(tree), f"Expressions are nested more than {DEPTH_MAX} deep.")
        chain = self.read(children[0], depth + len(children) // 2)
        for operator, operand in zip(children[1::2], children[2::2], strict=True):
            chain = Operation(str(operator), (chain, self.read(operand, depth)), place_of(operator))
        return chain

    def _word_operator(self, tree: Any, children: list[Any], depth: int) -> Operation:
        left, worded, right = children
        word = worded.children[0]
        if len(worded.children) == 1 and word in WORD_OPERATORS:
            return self._operation(str(word), [left, right], depth, word)
        if left.data == right.data == "variable" and str(left.children[0])[1:] not in self.parameters:
            detail = (
                f"A traversal ({word}) stands on its own in a pattern; it can't be part of a condition. "
                f"For its absence write not {{ … }}."
            )
            raise self.text.refuse(place_of(word), detail)
        hint = did_you_mean(word, WORD_OPERATORS)
        detail = f"There is no operator {word}.{hint} An edge stands between two bare variables, as in $a {word} $b."
        raise self.text.refuse(place_of(word), detail)

    def _undirected(self, tree: Any, children: list[Any], depth: int) -> Operation:
        detail = "A traversal <…> stands between two bare variables and on its own in a pattern."
        raise self.text.refuse(place_of(children[1]), detail)


def _operator(token: Token) -> str:
    return "not in" if token.type == "NOT_IN" else str(token)
