"""Resolutions of merge conflicts, as a caller gives them or as a file of conflicts holds them.

A file is JSON lines: each line is a conflict as `--conflicts` writes it, with `resolution` filled in: `"ours"`,
`"theirs"`, `"base"`, or an object with values. A line whose `resolution` is null decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import orjson

from omnigraph.branch.merge.model import SIDES, Conflict, EntityKey, Resolution
from omnigraph.errors import FileUnreadable, UsageError


def require_choice(argument: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise UsageError(detail=f"{argument} is one of {', '.join(choices)}, not {value!r}.")


def read_resolutions(resolutions: object) -> dict[EntityKey, Resolution]:
    """From a mapping of (table key, id), or from conflicts as dictionaries with `resolution`."""
    if resolutions is None:
        return {}
    if isinstance(resolutions, Mapping):
        return {_key(key): _resolution(value, where=f"resolution of {key}") for key, value in resolutions.items()}
    if isinstance(resolutions, str | bytes) or not isinstance(resolutions, Sequence):
        raise UsageError(detail="resolutions is a mapping from (table_key, id), or a list of conflicts.")
    return _of_conflicts(enumerate(resolutions), name="resolutions")


def read_resolution_file(path: str) -> dict[EntityKey, Resolution]:
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise FileUnreadable(path=path, detail=str(error)) from error
    parsed: list[tuple[int, object]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            parsed.append((number, orjson.loads(line)))
        except orjson.JSONDecodeError as error:
            raise FileUnreadable(path=path, detail=f"line {number} is not JSON: {error}") from error
    return _of_conflicts(parsed, name=path)


def conflict_lines(conflicts: Iterable[Conflict]) -> bytes:
    """Conflicts as JSON lines, each with an empty `resolution` to fill in."""
    return b"".join(orjson.dumps({**c.to_json(), "resolution": None}) + b"\n" for c in conflicts)


def _of_conflicts(conflicts: Iterable[tuple[int, object]], *, name: str) -> dict[EntityKey, Resolution]:
    by_entity: dict[EntityKey, Resolution] = {}
    for number, body in conflicts:
        where = f"{name}, conflict {number}"
        if not isinstance(body, Mapping):
            raise UsageError(detail=f"{where}: a conflict is an object, not {type(body).__name__}.")
        resolution = body.get("resolution")
        if resolution is None:
            continue
        key = _key((body.get("table_key"), body.get("id")), where=where)
        decided = _resolution(resolution, where=where, digest=body.get("digest"))
        if by_entity.setdefault(key, decided) != decided:
            raise UsageError(detail=f"{where}: {key[0]} {key[1]!r} is resolved twice, differently.")
    return by_entity


def _key(key: object, *, where: str = "resolutions") -> EntityKey:
    if not isinstance(key, tuple) or len(key) != 2 or not all(isinstance(part, str) for part in key):
        raise UsageError(detail=f"{where}: a resolution names a table_key and the id of an entity, not {key!r}.")
    return cast(EntityKey, key)


def _resolution(value: object, *, where: str, digest: object = None) -> Resolution:
    if isinstance(value, Resolution):
        return value
    known = digest if isinstance(digest, str) and digest else None
    if isinstance(value, str) and value in SIDES:
        return Resolution(take=cast(Any, value), digest=known)
    if isinstance(value, Mapping):
        return Resolution(values=dict(value), digest=known)
    raise UsageError(detail=f"{where}: resolution is ours, theirs, base, or an object with values, not {value!r}.")
