"""Settle: what was found broken while others wrote on.

A version that nothing pins any more may look broken because a cleanup was taking it away, or because something is lost
that the versions in its place need as well. So its table is looked at again, where it is pinned now:

1. doubtful   findings that a cleanup can cause, of versions that neither heads nor bases of branches pin any more
2. again      every line of these tables that is pinned now and was not looked at yet; where a sample had shown the
              damage, with all values and all bytes: a sample that shows nothing proves nothing
3. collected  a version whose own file is gone was removed, which is news and no error; of any other, 2 has told what
              is still broken

Others may go on writing, so that this repeats itself, ROUNDS_MAX times. What is doubtful after that stays an error if
its version is there: it was published, and what it needs is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omnigraph.errors import StorageError
from omnigraph.maintenance.verify.findings import Finding, found
from omnigraph.maintenance.verify.scope import Scope
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location

ROUNDS_MAX = 3
SAMPLED = frozenset(("unreadable_blob", "index_unreadable"))
COLLECTABLE = SAMPLED | {"version_missing", "version_unreadable", "missing_file", "wrong_size", "unreadable_data"}
"""What a version looks like while a cleanup removes it."""

Look = Callable[[Scope, bool], Sequence[Finding]]
"""Check a scope again, with all values or, as before, a sample."""


def settled(
    location: Location,
    findings: Sequence[Finding],
    scope: Scope,
    *,
    newest: Callable[[], tuple[Scope, Scope]],
    look: Look,
) -> list[Finding]:
    """`newest` gives what all heads rest on now, and what of it was asked for; `scope` is what was looked at first."""
    told, seen = list(findings), {line.at for line in scope.lines}
    for _ in range(ROUNDS_MAX):
        everything, chosen = newest() if any(map(_is_collectable, told)) else (scope, scope)
        doubtful = _doubtful(told, everything)
        if not doubtful:
            return told
        tables = {_root(one) for one in doubtful}
        again = _unseen(chosen, tables, seen)
        seen |= {line.at for line in again.lines}
        still = look(again, any(one.code in SAMPLED for one in doubtful)) if again.lines else ()
        told = [
            *(one for one in told if one not in doubtful),
            *(_collected(one) for one in doubtful if _is_gone(location, one)),
            *(one for one in still if (_is_collectable(one) or one.code == "checksum_mismatch") and one not in told),
        ]
    late = _doubtful(told, newest()[0])
    return [_collected(one) if one in late and _is_gone(location, one) else one for one in told]


def _unseen(scope: Scope, tables: set[str], seen: set[str]) -> Scope:
    return scope.only(lambda line: line.pin.root in tables and line.at not in seen)


def _is_collectable(one: Finding) -> bool:
    return one.code in COLLECTABLE and one.version is not None


def _doubtful(told: Sequence[Finding], everything: Scope) -> list[Finding]:
    pinned = {(line.pin.path, line.pin.version) for line in everything.lines}
    return [one for one in told if _is_collectable(one) and one.version not in pinned]


def _version(one: Finding) -> tuple[str, int]:
    assert one.version is not None
    return one.version


def _root(one: Finding) -> str:
    return _version(one)[0].partition("/tree/")[0]


def _is_gone(location: Location, one: Finding) -> bool:
    path, version = _version(one)
    try:
        lance_api.open_table(location, location.join(path), version=version)
    except lance_api.TableMissing:
        return True
    except StorageError:
        return False
    return False


def _collected(one: Finding) -> Finding:
    path, version = _version(one)
    text = f"version {version} of {path} was replaced and removed while it was being checked"
    return found("collected_meanwhile", text, table=one.table, branch=one.branch)
