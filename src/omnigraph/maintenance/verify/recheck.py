"""Recheck: findings about versions that others replaced during the run.

A version that nothing pins any more may look broken because a cleanup was removing it, or because something is lost
that the versions after it need as well. So its table is checked again, where it is pinned now:

1. doubtful   findings that a cleanup can cause, of versions that neither heads nor bases of branches pin any more
2. again      every line of these tables that is pinned now and was not checked yet; if a sample had shown the
              damage, with all values and all bytes: another sample could miss it
3. collected  a version whose own file is missing was removed, which is information and no error; of any other, 2 has
              reported what is still broken

Others may continue to write, so this is repeated up to ROUNDS_MAX times. What is doubtful after that remains an error
if its version exists: it was published, and what it needs is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omnigraph.errors import StorageError
from omnigraph.maintenance.verify.findings import Finding, make_finding
from omnigraph.maintenance.verify.scope import Scope
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location

ROUNDS_MAX = 3
SAMPLED = frozenset(("unreadable_blob", "index_unreadable"))
COLLECTABLE = SAMPLED | {"version_missing", "version_unreadable", "missing_file", "wrong_size", "unreadable_data"}
"""What a version looks like while a cleanup removes it."""

Look = Callable[[Scope, bool], Sequence[Finding]]
"""Check a scope again, with all values or, as before, a sample."""


def recheck(
    location: Location,
    findings: Sequence[Finding],
    scope: Scope,
    *,
    newest: Callable[[], tuple[Scope, Scope]],
    look: Look,
) -> list[Finding]:
    """`newest` returns what all heads pin now, and the chosen part of it; `scope` is what was checked first."""
    current, seen = list(findings), {line.version_id for line in scope.lines}
    for _ in range(ROUNDS_MAX):
        everything, chosen = newest() if any(map(_is_collectable, current)) else (scope, scope)
        doubtful = _doubtful(current, everything)
        if not doubtful:
            return current
        tables = {_root(finding) for finding in doubtful}
        again = _unseen(chosen, tables, seen)
        seen |= {line.version_id for line in again.lines}
        still = look(again, any(finding.code in SAMPLED for finding in doubtful)) if again.lines else ()
        current = [
            *(finding for finding in current if finding not in doubtful),
            *(_collected(finding) for finding in doubtful if _is_gone(location, finding)),
            *(
                finding
                for finding in still
                if (_is_collectable(finding) or finding.code == "checksum_mismatch") and finding not in current
            ),
        ]
    late = _doubtful(current, newest()[0])
    return [_collected(finding) if finding in late and _is_gone(location, finding) else finding for finding in current]


def _unseen(scope: Scope, tables: set[str], seen: set[str]) -> Scope:
    return scope.only(lambda line: line.pin.root in tables and line.version_id not in seen)


def _is_collectable(finding: Finding) -> bool:
    return finding.code in COLLECTABLE and finding.version is not None


def _doubtful(findings: Sequence[Finding], everything: Scope) -> list[Finding]:
    pinned = {(line.pin.path, line.pin.version) for line in everything.lines}
    return [finding for finding in findings if _is_collectable(finding) and finding.version not in pinned]


def _version(finding: Finding) -> tuple[str, int]:
    assert finding.version is not None
    return finding.version


def _root(finding: Finding) -> str:
    return _version(finding)[0].partition("/tree/")[0]


def _is_gone(location: Location, finding: Finding) -> bool:
    path, version = _version(finding)
    try:
        lance_api.open_table(location, location.join(path), version=version)
    except lance_api.TableMissing:
        return True
    except StorageError:
        return False
    return False


def _collected(finding: Finding) -> Finding:
    path, version = _version(finding)
    text = f"version {version} of {path} was replaced and removed while it was being checked"
    return make_finding("collected_meanwhile", text, table=finding.table, branch=finding.branch)
