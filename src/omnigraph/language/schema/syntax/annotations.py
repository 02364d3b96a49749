"""Annotations of types and properties: where each is allowed and its arguments; unknown ones are kept unchanged.

| annotation                    | on                              | takes                                      |
|-------------------------------|---------------------------------|--------------------------------------------|
| key, unique, index            | properties                      | nothing                                    |
| embed                         | vector properties of nodes      | a String property of the type; model="…"   |
| default                       | properties but Blob/Vector/list | a literal of the property's type           |
| rename_from                   | nodes, edges, properties        | the old name                               |
| description                   | nodes, edges, properties        | text                                       |
| instruction                   | nodes, edges                    | text                                       |
| card                          | edges                           | min..max or min..                          |
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from omnigraph.language.schema.model import Annotation, PropertyType
from omnigraph.language.schema.source import Source, did_you_mean
from omnigraph.language.schema.syntax.declarations import Argument, Declaration, RawAnnotation, RawProperty
from omnigraph.language.schema.syntax.literals import Misfit, fit

MARKS = ("key", "unique", "index")
KNOWN = (*MARKS, "range", "check", "embed", "default", "rename_from", "description", "instruction", "card")
CARDINALITY_MAX = 2**63 - 1
_TYPE_NAME = re.compile(r"[A-Z][A-Za-z0-9_]*")
_PROPERTY_NAME = re.compile(r"[a-z_][A-Za-z0-9_]*")


# ---- on types --------------------------------------------------------------------------------------------------------


def type_annotations(declaration: Declaration, source: Source) -> tuple[Annotation, ...]:
    """The checked annotations of a node or edge, without @card."""
    name = declaration.name.text
    _refuse_repeats(declaration.annotations, name, source)
    annotations: list[Annotation] = []
    for raw in declaration.annotations:
        if raw.name in ("embed", "default"):
            raise source.rule_error(raw.place, f"@{raw.name} belongs on a property, not on a type.")
        if raw.name == "card":
            if declaration.kind == "node":
                raise source.rule_error(raw.place, "@card belongs on an edge: it counts the edges of each source node.")
            continue
        if raw.name in ("description", "instruction"):
            _text(raw, source)
        elif raw.name == "rename_from":
            _old_name(raw, name, _TYPE_NAME, source)
        annotations.append(_annotation(raw))
    return tuple(annotations)


def cardinality(declaration: Declaration, source: Source) -> tuple[int, int | None]:
    raw = next((a for a in declaration.annotations if a.name == "card"), None)
    if raw is None:
        return 0, None
    bounds = raw.arguments[0] if len(raw.arguments) == 1 else None
    if bounds is None or bounds.form != "range" or not isinstance(bounds.low, int) or isinstance(bounds.high, float):
        raise source.rule_error(raw.place, "@card takes whole numbers as min..max or min.., as in @card(0..1).")
    if max(bounds.low, bounds.high or 0) > CARDINALITY_MAX:
        raise source.rule_error(bounds.place, f"@card goes up to {CARDINALITY_MAX}.")
    if bounds.high is not None and bounds.high < bounds.low:
        raise source.rule_error(
            bounds.place, f"The maximum of @card, {bounds.high}, is below its minimum, {bounds.low}."
        )
    return bounds.low, bounds.high


# ---- on properties ---------------------------------------------------------------------------------------------------


def property_annotations(raw: RawProperty, owner: str, source: Source) -> tuple[Annotation, ...]:
    """The checked annotations of a property of an `owner` (interface, node, edge), marks included, in their order."""
    name = raw.name.text
    _refuse_repeats(raw.annotations, name, source)
    annotations: list[Annotation] = []
    for annotation in raw.annotations:
        checked = _annotation(annotation)
        if annotation.name in MARKS:
            check_member(annotation.name, raw, owner, annotation, source)
        elif annotation.name == "embed":
            _embed(annotation, raw, owner, source)
        elif annotation.name == "default":
            checked = Annotation("default", _default(annotation, raw, source))
        elif annotation.name == "rename_from":
            _old_name(annotation, name, _PROPERTY_NAME, source)
        elif annotation.name == "description":
            _text(annotation, source)
        elif annotation.name == "instruction":
            raise source.rule_error(annotation.place, "@instruction belongs on a node or edge type, not on a property.")
        elif annotation.name == "card":
            raise source.rule_error(annotation.place, "@card belongs in the head of an edge, before the {.")
        elif annotation.name in ("range", "check"):
            form = f"@range({name}, 0..100)" if annotation.name == "range" else f'@check({name}, "pattern")'
            raise source.rule_error(annotation.place, f"@{annotation.name} is written with its property, as in {form}.")
        annotations.append(checked)
    return tuple(annotations)


def check_member(kind: str, member: RawProperty, owner: str, annotation: RawAnnotation, source: Source) -> None:
    """Refuse a `member` that can't be part of @key, @unique or @index, written on the property or in the body."""
    name, type_ = member.name.text, member.type.kind
    if kind == "key":
        if owner == "edge":
            raise source.rule_error(annotation.place, "Edges have no @key; use @unique, for example @unique(src, dst).")
        if member.nullable:
            raise source.rule_error(annotation.place, f"{name} can be null, so it can't be part of @key.")
    if type_ == "Blob" or (type_ in ("List", "Vector") and kind != "index"):
        what = {"Blob": "a Blob", "List": "a list", "Vector": "a vector"}[type_]
        raise source.rule_error(annotation.place, f"{name} is {what}, so it can't be part of @{kind}.")


def check_embed_source(raw: RawProperty, types: dict[str, PropertyType], type_name: str, source: Source) -> None:
    """Refuse a source of @embed that is no String property of the same type; called when all properties are read."""
    embed = next((a for a in raw.annotations if a.name == "embed"), None)
    if embed is None:
        return
    argument = embed.arguments[0]
    name = str(argument.value)
    if name not in types:
        detail = f"{type_name} has no property {name} to embed.{did_you_mean(name, types)}"
        raise source.rule_error(argument.place, detail)
    if types[name].kind != "String":
        raise source.rule_error(argument.place, f"@embed reads a String property, and {name} is {types[name]}.")


def _embed(annotation: RawAnnotation, raw: RawProperty, owner: str, source: Source) -> None:
    if owner == "edge":
        raise source.rule_error(annotation.place, "@embed belongs on a node's property, not on an edge's.")
    if raw.type.kind != "Vector":
        raise source.rule_error(
            annotation.place, f"@embed belongs on a vector property, and {raw.name.text} is {raw.type}."
        )
    if not annotation.arguments or annotation.arguments[0].form not in ("string", "word"):
        raise source.rule_error(annotation.place, '@embed takes the name of a String property, as in @embed("title").')
    for option in annotation.arguments[1:]:
        if option.key != "model":
            raise source.rule_error(option.place, f"@embed knows the option model only, not {option.key}.")
        if option.form != "string" or not str(option.value).strip():
            raise source.rule_error(option.place, "The model of @embed is a string that is not empty.")


def _default(annotation: RawAnnotation, raw: RawProperty, source: Source) -> str | int | float | bool:
    if raw.type.kind in ("Blob", "Vector", "List"):
        what = {"Blob": "a Blob", "List": "a list", "Vector": "a vector"}[raw.type.kind]
        raise source.rule_error(annotation.place, f"@default is not possible for {what}.")
    if len(annotation.arguments) != 1:
        raise source.rule_error(annotation.place, "@default takes one literal, as in @default(0).")
    try:
        return fit(raw.type, annotation.arguments[0])
    except Misfit as misfit:
        detail = f"The default of {raw.name.text} must be {misfit}."
        raise source.rule_error(annotation.arguments[0].place, detail) from None


# ---- shared ----------------------------------------------------------------------------------------------------------


def _annotation(raw: RawAnnotation) -> Annotation:
    if not raw.arguments:
        return Annotation(raw.name)
    first, *options = raw.arguments
    return Annotation(raw.name, first.value, tuple((o.key or "", o.value) for o in options))


def _refuse_repeats(annotations: Sequence[RawAnnotation], name: str, source: Source) -> None:
    seen: set[str] = set()
    for annotation in annotations:
        if annotation.name in KNOWN and annotation.name in seen:
            raise source.rule_error(annotation.place, f"{name} carries @{annotation.name} twice.")
        seen.add(annotation.name)


def _only(annotation: RawAnnotation, source: Source, what: str) -> Argument:
    if len(annotation.arguments) != 1:
        raise source.rule_error(annotation.place, f"@{annotation.name} takes {what} and nothing else.")
    return annotation.arguments[0]


def _text(annotation: RawAnnotation, source: Source) -> None:
    argument = _only(annotation, source, "one string")
    if argument.form != "string" or not str(argument.value).strip():
        raise source.rule_error(argument.place, f"@{annotation.name} takes a string in quotes that is not empty.")


def _old_name(annotation: RawAnnotation, name: str, pattern: re.Pattern[str], source: Source) -> None:
    argument = _only(annotation, source, "the old name")
    old = str(argument.value)
    if argument.form not in ("string", "word") or not pattern.fullmatch(old):
        case = "an upper-case" if pattern is _TYPE_NAME else "a lower-case"
        detail = f'@rename_from takes the old name, a name that starts with {case} letter, as in @rename_from("…").'
        raise source.rule_error(argument.place, detail)
    if old == name:
        raise source.rule_error(argument.place, f"{name} can't be renamed from itself.")
