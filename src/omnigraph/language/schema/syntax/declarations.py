"""The declarations of a .pg file, each part with its place, before the rules of the language are checked.

1. declaration   name(s), head annotations and body of one `interface`, `node` or `edge`
2. body          a flat list of properties and annotations is sorted: `@key @unique @index @range @check` with
                 parentheses is a constraint of the type, any other annotation belongs to the property before it
3. arguments     literals decoded, and their shape checked: a value first, then only `name=value`

Raises SchemaSyntaxError for what is not part of the grammar, SchemaRuleError for unknown types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from omnigraph.language.schema.model import CONSTRAINTS, SCALARS, VECTOR_DIMENSION_MAX, Literal_, PropertyType
from omnigraph.language.schema.source import Place, Source, did_you_mean

if TYPE_CHECKING:
    from omnigraph.language.lalr import Token, Tree

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
TYPE_WORDS = {
    "boolean": "Bool",
    "date_time": "DateTime",
    "double": "F64",
    "float": "F64",
    "int": "I32 or I64",
    "integer": "I32 or I64",
    "long": "I64",
    "number": "F64 or I64",
    "text": "String",
    "timestamp": "DateTime",
}
ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)


@dataclass(frozen=True)
class Name:
    text: str
    place: Place


@dataclass(frozen=True)
class Argument:
    """One argument. `word` is a bare identifier; an option has a `key`; a range has bounds instead of a value."""

    form: Literal["string", "number", "word", "bool", "range"]
    place: Place
    value: Literal_ = ""
    key: str | None = None
    low: int | float | None = None
    high: int | float | None = None
    signed: bool = False


@dataclass(frozen=True)
class RawAnnotation:
    name: str
    place: Place
    arguments: tuple[Argument, ...] = ()


@dataclass(frozen=True)
class RawProperty:
    name: Name
    type: PropertyType
    nullable: bool
    annotations: tuple[RawAnnotation, ...] = ()


@dataclass(frozen=True)
class Declaration:
    kind: Literal["interface", "node", "edge"]
    name: Name
    annotations: tuple[RawAnnotation, ...] = ()
    implements: tuple[Name, ...] = ()
    endpoints: tuple[Name, ...] = ()
    properties: tuple[RawProperty, ...] = ()
    constraints: tuple[RawAnnotation, ...] = ()


def read_declarations(tree: Tree, source: Source) -> list[Declaration]:
    return [_declaration(child, source) for child in tree.children]


def place_of(token: Token) -> Place:
    return Place(token.line, token.column)


# ---- declarations ----------------------------------------------------------------------------------------------------


def _declaration(tree: Tree, source: Source) -> Declaration:
    names: list[Name] = []
    annotations: list[RawAnnotation] = []
    implements: tuple[Name, ...] = ()
    properties: tuple[RawProperty, ...] = ()
    constraints: tuple[RawAnnotation, ...] = ()
    kind = cast(Literal["interface", "node", "edge"], tree.data)
    for child in tree.children:
        if _is_token(child):
            names.append(_type_name(child, source))
            continue
        if child.data == "annotation":
            annotations.append(_annotation(child, source))
        elif child.data == "implements":
            implements = tuple(_type_name(t, source) for t in child.children)
        else:
            properties, constraints = _body(child, source, kind)
    for raw in annotations:
        if raw.name in CONSTRAINTS:
            detail = f"@{raw.name} stands in the body: as a constraint, @{raw.name}(property…), or behind a property."
            raise source.syntax_error(raw.place, detail)
        _check_shape(raw, source)
    return Declaration(kind, names[0], tuple(annotations), implements, tuple(names[1:]), properties, constraints)


def _body(tree: Tree, source: Source, kind: str) -> tuple[tuple[RawProperty, ...], tuple[RawAnnotation, ...]]:
    """Sort the flat list: an annotation belongs to the property before it, a constraint to the type."""
    properties: list[tuple[Tree, list[RawAnnotation]]] = []
    constraints: list[RawAnnotation] = []
    owner: list[RawAnnotation] | None = None
    for item in tree.children:
        if item.data == "property":
            owner = []
            properties.append((item, owner))
            continue
        raw = _annotation(item, source)
        if raw.name in CONSTRAINTS and raw.arguments:
            if kind == "interface":
                detail = f"An interface holds properties only; write @{raw.name}(…) in the nodes that implement it."
                raise source.syntax_error(raw.place, detail)
            constraints.append(raw)
            owner = None
        elif owner is None:
            raise source.syntax_error(raw.place, _stray_annotation(raw, kind))
        else:
            _check_shape(raw, source)
            owner.append(raw)
    return tuple(_property(p, tuple(a), source) for p, a in properties), tuple(constraints)


def _stray_annotation(raw: RawAnnotation, kind: str) -> str:
    if raw.name in CONSTRAINTS:
        return f"@{raw.name} needs its properties here, as in @{raw.name}(name), or has to follow a property."
    return (
        f"@{raw.name} follows no property. Annotations of a property stand right behind it, "
        f"those of the {kind} stand before the {{."
    )


def _property(tree: Tree, annotations: tuple[RawAnnotation, ...], source: Source) -> RawProperty:
    name, type_tree, *rest = tree.children
    if not ("a" <= name[0] <= "z" or name[0] == "_"):
        expected = name[0].lower() + name[1:]
        detail = f"A property name starts with a lower-case letter or _: {expected}, not {name}."
        raise source.syntax_error(place_of(name), detail)
    return RawProperty(Name(str(name), place_of(name)), _type(type_tree, source), bool(rest), annotations)


def _type_name(token: Token, source: Source) -> Name:
    if not "A" <= token[0] <= "Z":
        bare = token.lstrip("_")
        hint = f": {bare[0].upper()}{bare[1:]}, not {token}" if bare and bare[0].isalpha() else ""
        raise source.syntax_error(place_of(token), f"A type name starts with an upper-case letter{hint}.")
    return Name(str(token), place_of(token))


# ---- types -----------------------------------------------------------------------------------------------------------


def _type(tree: Tree, source: Source) -> PropertyType:
    if tree.data == "base":
        return _base(tree.children[0], source)
    if tree.data == "enum":
        return _enum(tree.children, source)
    if tree.data == "vector":
        return _vector(tree.children[1], source)
    inner = tree.children[0]
    first = inner.children[0]
    item = _type(inner, source)
    if item.kind in ("Enum", "Vector", "Blob"):
        word = "an enum" if item.kind == "Enum" else f"a {item.kind}"
        raise source.rule_error(place_of(first), f"A list can't hold {word}; its items are other base types.")
    return PropertyType("List", item=item.kind)


def _base(token: Token, source: Source) -> PropertyType:
    if token in SCALARS:
        return PropertyType(str(token))
    suggested = TYPE_WORDS.get(token.lower())
    hint = f" Did you mean {suggested}?" if suggested else did_you_mean(token, [*SCALARS, "Vector", "enum"])
    raise source.rule_error(place_of(token), f"There is no property type {token}.{hint}")


def _enum(tokens: Sequence[Token], source: Source) -> PropertyType:
    word, *values = tokens
    if not values:
        raise source.rule_error(place_of(word), "An enum needs at least one value, as in enum(open, closed).")
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise source.rule_error(place_of(value), f"The enum lists {value} twice.")
        seen.add(str(value))
    return PropertyType("Enum", values=tuple(sorted(seen)))


def _vector(token: Token, source: Source) -> PropertyType:
    # Compared as text first: int() refuses thousands of digits with an error of its own.
    if not token.isdigit() or len(token.lstrip("0")) > 10 or not 1 <= int(token) <= VECTOR_DIMENSION_MAX:
        detail = f"The length of a vector is a whole number from 1 to {VECTOR_DIMENSION_MAX}, not {token}."
        raise source.rule_error(place_of(token), detail)
    return PropertyType("Vector", dimension=int(token))


# ---- annotations and literals ----------------------------------------------------------------------------------------


def _annotation(tree: Tree, source: Source) -> RawAnnotation:
    at_sign, name, *rest = tree.children
    place, word = place_of(at_sign), str(name)
    if not rest:
        return RawAnnotation(word, place)
    arguments = tuple(_argument(a, source) for a in rest[0].children)
    if not arguments:
        raise source.syntax_error(place, f"The parentheses of @{word} are empty; leave them out or write an argument.")
    return RawAnnotation(word, place, arguments)


def _check_shape(raw: RawAnnotation, source: Source) -> None:
    """`(value, name=value, …)`, a range only in @card, a sign only in @default. Constraints are checked elsewhere."""
    keys: set[str] = set()
    for i, a in enumerate(raw.arguments):
        if i == 0 and a.key is not None:
            raise source.syntax_error(a.place, f"The first argument of @{raw.name} is a plain value.")
        if i > 0 and a.key is None:
            raise source.syntax_error(a.place, f"Further arguments of @{raw.name} are written name=value.")
        if a.form == "range" and raw.name != "card":
            raise source.syntax_error(a.place, f"@{raw.name} takes no range; ranges belong to @range and @card.")
        if a.signed and raw.name != "default":
            raise source.syntax_error(a.place, "Only the bounds of @range and the value of @default take a sign.")
        if a.key is not None and a.key in keys:
            raise source.syntax_error(a.place, f"@{raw.name} is given {a.key} twice.")
        keys.add(a.key or "")


def _argument(tree: Tree, source: Source) -> Argument:
    if tree.data == "value":
        return _value(tree.children[0], source)
    if tree.data == "option":
        word = tree.children[0]
        value = _value(tree.children[1].children[0], source)
        if value.form == "word":
            raise source.syntax_error(value.place, f"The value of {word} is a literal; put it in quotes.")
        return Argument(value.form, place_of(word), value.value, str(word), signed=value.signed)
    bounds: dict[str, int | float] = {}
    first: Token | None = None
    signed = False
    for child in tree.children:
        token = child if _is_token(child) else child.children[0]
        signed = signed or token[0] in "+-"
        first = first if first is not None else token
        if not _is_token(child):
            bounds[str(child.data)] = _number(token, source)
    assert first is not None, "a range has its dots at least"
    return Argument("range", place_of(first), low=bounds.get("low"), high=bounds.get("high"), signed=signed)


def _value(token: Token, source: Source) -> Argument:
    place = place_of(token)
    if token.type == "STRING":
        return Argument("string", place, _string(token, source))
    if token.type == "NUMBER":
        return Argument("number", place, _number(token, source), signed=token[0] in "+-")
    if token in ("true", "false"):
        return Argument("bool", place, token == "true")
    return Argument("word", place, str(token))


def _number(token: Token, source: Source) -> int | float:
    if "." in token:
        number = float(token)
        if number in (float("inf"), float("-inf")):
            raise source.syntax_error(place_of(token), f"{token} is too large for a number.")
        return number
    # 20 digits hold every 64-bit integer; int() refuses thousands of digits with an error of its own.
    if len(token.lstrip("+-0")) > 20 or not INTEGER_MIN <= int(token) <= INTEGER_MAX:
        raise source.syntax_error(place_of(token), f"{token} does not fit into 64 bits.")
    return int(token)


def _string(token: Token, source: Source) -> str:
    def decode(match: re.Match[str]) -> str:
        code = match.group(1)
        if code in ESCAPES:
            return ESCAPES[code]
        point = int(code[1:], 16) if len(code) == 5 else 0
        if point and not 0xD800 <= point <= 0xDFFF:
            return chr(point)
        place = source.place_of(token.start + 1 + match.start())
        if len(code) == 5:
            raise source.syntax_error(place, f"\\{code} is not a character that text may hold.")
        known = r"\" \\ \n \r \t and \uXXXX"
        raise source.syntax_error(
            place, f"There is no escape \\{code}; strings know {known}. A backslash itself is \\\\."
        )

    return _ESCAPE.sub(decode, token[1:-1])


def _is_token(child: Any) -> bool:
    return isinstance(child, str)
