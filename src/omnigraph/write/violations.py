"""How broken rules are reported: the error of refused rows, with counts and the first violations."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from omnigraph.errors import ConstraintViolation, KeyConflict, RecordError, RowsRefused, UnknownProperty, Violation
from omnigraph.language.schema.model import EntityType
from omnigraph.rules.problem import value_text

SHOWN_MAX = 20


def described(v: Violation) -> str:
    """One violation as a line for people: where, who, what."""
    where = [f"line {v.line}"] if v.line is not None else [f"row {v.row}"] if v.row is not None else []
    if v.source is not None:
        where.insert(0, v.source)
    who = v.table_key if v.entity_id is None else f"{v.table_key} {value_text(v.entity_id)}"
    return ", ".join([*where, who]) + f": {v.message}"


def shown(violations: Sequence[Violation], count: int | None = None) -> str:
    """The first violations, and how many more there are of `count`."""
    lines = [described(v) for v in violations[:SHOWN_MAX]]
    more = (len(violations) if count is None else count) - len(lines)
    return "\n".join([*lines, *([f"… and {more} more"] if more > 0 else [])])


def told(first: Sequence[Violation], by_rule: Mapping[str, int]) -> dict[str, Any]:
    """The fields of an error about rows: of all of them the counts, of the first ones everything."""
    count = sum(by_rule.values())
    return {
        "count": count,
        "shown": shown(first, count),
        "violations": [v.to_json() for v in first[:SHOWN_MAX]],
        "by_rule": dict(by_rule),
    }


def refuse(violations: Sequence[Violation]) -> NoReturn:
    """Raise all violations as one error; text and JSON carry the first 20, `count` says how many there are."""
    assert violations
    raise ConstraintViolation(**told(violations, Counter(v.rule for v in violations)))


def unplaced_order(v: Violation) -> tuple[str, str, str]:
    """The order of violations that no line is to blame for."""
    return v.table_key, v.entity_id or "", v.message


def refusal(
    first: Sequence[Violation],
    by_rule: Mapping[str, int],
    *,
    no_records: bool,
    repeated: bool,
    existing: Violation | None,
) -> RowsRefused:
    """What refuses a load. The condition is that of the rule which is asked first: records, ids twice, ids that exist,
    all others; rows of every rule are told with it.
    """
    fields = told(first, by_rule)
    if no_records:
        return RecordError(**fields)
    if existing is not None and not repeated:
        return KeyConflict(table_key=existing.table_key, entity_id=existing.entity_id, **fields)
    return ConstraintViolation(**fields)


def refuse_if_any(violations: Sequence[Violation]) -> None:
    if violations:
        refuse(violations)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def hint(name: str, known: Iterable[str]) -> str:
    found = nearest(name, known)
    return "" if found is None else f" (did you mean {found!r}?)"


def unknown_property(t: EntityType, given: object) -> UnknownProperty:
    name = printable(str(given))
    fields = {"table_key": t.key, "property": name}
    suggestion = nearest(name, t.by_name)
    return UnknownProperty(**fields, suggestion=suggestion) if suggestion else UnknownProperty(**fields)


def printable(name: str) -> str:
    """A name that can be written as UTF-8, whatever JSON escapes it was made of."""
    return name.encode("utf-8", "backslashreplace").decode()
