"""@unique: no two rows of a type have the same tuple of values. A tuple with a null member is equal to no other."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.rules.problem import Problem, value_text


def repeated_tuple(names: Sequence[str], values: Sequence[object], holder_id: object, where: str | None) -> Problem:
    """An earlier row of the write has the tuple; `where` is that row's line, if it has one."""
    place = "" if where is None else f", {where},"
    return _problem(names, values, f"is also held by {value_text(holder_id)}{place} in the same write")


def taken_tuple(names: Sequence[str], values: Sequence[object], holder_id: object) -> Problem:
    """A row of the graph has the tuple."""
    return _problem(names, values, f"is held by {value_text(holder_id)}")


def _problem(names: Sequence[str], values: Sequence[object], reason: str) -> Problem:
    label = ", ".join(names)
    texts = [value_text(value) for value in values]
    shown = texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
    return Problem("unique", f"{label}: {shown} {reason}", label)
