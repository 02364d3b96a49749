"""Rules that one row keeps or breaks by itself: required, enum, @range, @check."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.language.schema.model import Constraint, Property
from omnigraph.rules.problem import Problem, shortened, value_text

REQUIRED = Problem("null", "is required")


def required(name: str, *, rule: str = "null") -> Problem:
    """A required property is null or absent; with the rule `endpoint` an end of an edge."""
    return replace(REQUIRED, rule=rule).on(name)


def not_in_enum(p: Property, value: object) -> Problem:
    return Problem("enum", f"{value_text(value)} is not one of {', '.join(p.type.values)}").on(p.name)


def outside_range(c: Constraint, value: object) -> Problem:
    if c.low is None:
        bounds = f"above {c.high}"
    elif c.high is None:
        bounds = f"below {c.low}"
    else:
        bounds = f"not between {c.low} and {c.high}"
    return Problem("range", f"{value} is {bounds}").on(c.properties[0])


def not_matching(c: Constraint, value: object) -> Problem:
    return Problem("check", f"{value_text(value)} does not match the pattern {c.pattern}").on(c.properties[0])


def unusable_pattern(c: Constraint, reason: str) -> Problem:
    """The pattern of a @check can't be run, so no value can be checked."""
    pattern = shortened(c.pattern or "")
    text = f"@check can't use its pattern {pattern}; remove it from the schema. {reason}"
    return Problem("check", text).on(c.properties[0])
