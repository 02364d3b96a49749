"""The driver of verify: snapshot, tasks, findings. See the package's docstring for the steps."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from omnigraph.commit.committer import Committer
from omnigraph.errors import BranchNotFound, UsageError
from omnigraph.language.schema.model import EntityType
from omnigraph.maintenance.verify.addresses import address_tasks, check_addresses
from omnigraph.maintenance.verify.blobs import blob_tasks, check_blobs
from omnigraph.maintenance.verify.checksums import (
    check_checksums,
    check_manifest_files,
    checksum_tasks,
    is_index,
    version_crcs,
)
from omnigraph.maintenance.verify.files import INDEX_OF, check_table
from omnigraph.maintenance.verify.findings import Finding, VerifyResult, gathered
from omnigraph.maintenance.verify.history import History, check_manifest
from omnigraph.maintenance.verify.indices import SAMPLE_ROWS, check_index, index_tasks
from omnigraph.maintenance.verify.isolated import CarefulRunner, end_children
from omnigraph.maintenance.verify.recheck import recheck
from omnigraph.maintenance.verify.rows import check_rows, questions_of
from omnigraph.maintenance.verify.rules import check_rules, rule_tasks
from omnigraph.maintenance.verify.scope import (
    Depth,
    FrozenManifest,
    Line,
    Scope,
    line_json,
    location_json,
    ordered,
    scope_of,
)
from omnigraph.maintenance.verify.stray_checks import (
    check_drift,
    check_folders,
    check_foreign,
    check_locks,
    check_lost,
)
from omnigraph.maintenance.verify.tables import finding_of
from omnigraph.storage.layout import Location, locate
from omnigraph.storage.manifest.records import Head
from omnigraph.storage.manifest.tags import read_tags
from omnigraph.tasks.engine import EngineSettings
from omnigraph.tasks.runner import Runner
from omnigraph.tasks.staging import Staging, new_staging

IN_FLIGHT_S = 7 * 24 * 3600.0
"""A file older than this can't belong to a write that is still being prepared."""
LOCAL_BELOW_BYTES = 256 << 20
"""Reading less than this in this process takes less time than starting a JVM and its workers."""


@dataclass(frozen=True)
class VerifyOptions:
    """`branch` None is every branch. `seed` chooses the samples; the same seed makes the same queries."""

    branch: str | None = None
    quick: bool = False
    full: bool = False
    orphans_older_than_s: float = IN_FLIGHT_S
    engine: str | None = None
    seed: int | None = None


def verify(committer: Committer, engines: EngineSettings, options: VerifyOptions) -> VerifyResult:
    """Check one branch or all of them. Read-only."""
    try:
        return _verify(committer, engines, options)
    finally:
        end_children()


def _verify(committer: Committer, engines: EngineSettings, options: VerifyOptions) -> VerifyResult:
    if options.quick and options.full:
        raise UsageError(detail="--quick and --full exclude each other: the one reads no data, the other all of it.")
    if options.orphans_older_than_s < 0:
        raise UsageError(detail=f"orphans_older_than_s is a number of seconds, not {options.orphans_older_than_s}.")
    started = time.monotonic()
    manifest = FrozenManifest(committer.manifest.location)
    heads = _chosen(manifest, options.branch)
    tags = list(read_tags(manifest).values()) if options.branch is None else []
    history = check_manifest(manifest, heads, tags)
    scope = scope_of(manifest, heads, tags)
    work_bytes = 0 if options.quick else sum(_work_bytes(line, full=options.full) for line in scope.lines)
    runner = engines.runner(work_bytes=work_bytes, requested=options.engine, local_below_bytes=LOCAL_BELOW_BYTES)
    job = _Job(manifest.location, history, scope, runner, options)
    findings = [*history.findings, *(scope.findings if history.is_known else ()), *job.findings()]
    findings += _outside_tables(committer, history, heads, options)
    findings += check_manifest_files(manifest, history.checksums)

    def look(again: Scope, all_values: bool) -> list[Finding]:
        deeper = replace(options, full=options.full or (all_values and not options.quick))
        return _Job(manifest.location, history, again, runner, deeper).findings()

    rechecked = recheck(
        manifest.location, findings, scope, newest=lambda: _newest(committer, options.branch), look=look
    )
    checked = {"branches": len(heads), "tags": len(tags), "commits": history.commits, **job.checked}
    result = gathered(rechecked, uri=manifest.location.uri)
    return VerifyResult(checked, result, runner.engine, time.monotonic() - started)


def _outside_tables(
    committer: Committer, history: History, heads: Sequence[Head], options: VerifyOptions
) -> Iterator[Finding]:
    location, old_s = committer.manifest.location, time.time() - options.orphans_older_than_s
    named = {head.branch: head for head in heads}
    yield from check_locks(committer, named)
    yield from check_lost(committer, named)
    yield from check_drift(committer, named)
    yield from check_folders(location, history.roots if history.is_known else None, old_s=old_s)
    yield from check_foreign(location, old_s=old_s)


def _newest(committer: Committer, branch: str | None) -> tuple[Scope, Scope]:
    """What all heads pin by now, and what the chosen one does."""
    manifest = FrozenManifest(committer.manifest.location)
    heads = ordered(manifest.heads())
    everything = scope_of(manifest, heads, read_tags(manifest).values())
    if branch is None:
        return everything, everything
    return everything, scope_of(manifest, [head for head in heads if head.branch == branch])


def _chosen(manifest: FrozenManifest, branch: str | None) -> list[Head]:
    heads = manifest.heads()
    if branch is None:
        return ordered(heads)
    if branch not in heads:
        raise BranchNotFound(branch=branch, uri=manifest.location.uri)
    return [heads[branch]]


class _Job:
    """The tasks of one run, and what they counted."""

    def __init__(
        self, location: Location, history: History, scope: Scope, runner: Runner, options: VerifyOptions
    ) -> None:
        self._history = history
        self._scope = scope
        self._location = location
        self._location_body = location_json(location)
        self._trusted: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._runner = CarefulRunner(runner, self._trusted, self._sizes, is_full=options.full)
        self._options = options
        self._seed = random.randrange(2**31) if options.seed is None else options.seed
        self._facts: dict[str, Any] = {}
        self._heads_lines = tuple(line for line in scope.lines if not line.is_base and not line.is_bare)
        self.checked = {"tables": len(scope.lines), "files": 0, "bytes": 0}
        if not options.quick:
            self.checked |= {"rows": 0, "indices": 0, "index_questions": 0}
        self.checked |= {"blobs": 0}

    def findings(self) -> list[Finding]:
        """Findings about everything in the scope."""
        findings = [*self.tables(), *self.checksums()]
        if not self._options.quick:
            findings += [*self.rows(), *self.indices(), *(self.rules() if self._options.full else ())]
        return [*findings, *self.blobs()]

    @property
    def _depth(self) -> Depth:
        return "none" if self._options.quick else "all" if self._options.full else "some"

    def tables(self) -> Iterator[Finding]:
        by_root: dict[str, list[Line]] = {}
        for line in self._scope.lines:
            by_root.setdefault(line.pin.root, []).append(line)
        old_s = time.time() - self._options.orphans_older_than_s
        tasks = [
            {
                "place": self._location_body,
                "root": root,
                "lines": [line_json(line) for line in lines],
                "forks": sorted(self._history.forks(root)) if self._history.is_known else None,
                "old_s": old_s,
                "version_crcs": version_crcs(lines, self._history.checksums),
            }
            for root, lines in by_root.items()
        ]
        for result in self._runner.run(check_table, tasks, stage="looking at files"):
            self._facts.update(result["facts"])
            self._sizes.update({version_id: fact.get("bytes", 0) for version_id, fact in result["facts"].items()})
            self.checked["files"] += result["files"]
            self.checked["bytes"] += result["bytes"]
            yield from map(finding_of, result["findings"])

    def checksums(self) -> Iterator[Finding]:
        chosen = checksum_tasks(
            self._location_body, self._scope.lines, self._facts, self._history.checksums, depth=self._depth
        )
        summed = version_crcs(self._scope.lines, self._history.checksums)
        unsummed = [self._facts.get(line.version_id, {}) for line in self._scope.lines if line.version_id not in summed]
        self.checked["checksums"] = chosen.checked + len(summed)
        self.checked["unchecked"] = chosen.unchecked + len(unsummed)
        self.checked["unchecked_bytes"] = chosen.unchecked_bytes + sum(f.get("version_bytes", 0) for f in unsummed)
        results = self._runner.run(check_checksums, chosen.tasks, stage="comparing checksums")
        self._trusted |= chosen.complete
        for task, result in zip(chosen.tasks, results, strict=True):
            yield from map(finding_of, result["findings"])
            self._leave_out(task["at"], result["broken"])

    def _leave_out(self, version_id: str, broken: Sequence[str]) -> None:
        """Keep Lance from reading damaged files: of an index all indices of its column, because a query of one of
        them may go through another; of data every version of the table, because versions share files.
        """
        damaged = {what.removeprefix(INDEX_OF) for what in broken if is_index(what)}
        root = version_id.partition("@")[0].partition("/tree/")[0]
        is_data = any(not is_index(what) for what in broken)
        if broken:
            self._trusted -= {
                version_id
                for version_id in self._trusted
                if version_id.partition("@")[0].partition("/tree/")[0] == root
            }
        for name, fact in self._facts.items():
            if fact and name.partition("@")[0].partition("/tree/")[0] == root:
                fact["whole"] = fact["whole"] and not is_data
                columns = {i["column"] for i in fact["indices"] if i["name"] in damaged}
                fact["indices"] = [i for i in fact["indices"] if not is_data and i["column"] not in columns]

    def rows(self) -> Sequence[Finding]:
        questions = questions_of(self._scope.images, self._facts)
        with scratch(self._location, self._runner) as staging:
            findings, rows = check_rows(self._runner, self._location_body, staging, questions, self._facts)
        self.checked["rows"] = rows
        return findings

    def indices(self) -> Iterator[Finding]:
        tasks = index_tasks(
            self._location_body, self._heads_lines, self._facts, full=self._options.full, seed=self._seed
        )
        self.checked["indices"] = len({(t["line"]["pin"][0], str(t["line"]["pin"]), t["index"]["name"]) for t in tasks})
        entries = address_tasks(self._location_body, self._heads_lines, self._facts)
        for result in self._runner.run(check_addresses, entries, stage="following row addresses") if entries else ():
            yield from map(finding_of, result["findings"])
        for result in self._runner.run(check_index, tasks, stage="asking indices"):
            self.checked["index_questions"] += result["asked"]
            yield from map(finding_of, result["findings"])

    def blobs(self) -> Iterator[Finding]:
        tasks = blob_tasks(self._location_body, self._heads_lines, self._facts, read=self._depth, seed=self._seed)
        for result in self._runner.run(check_blobs, tasks, stage="looking at blobs"):
            self.checked["blobs"] += result["blobs"]
            yield from map(finding_of, result["findings"])

    def rules(self) -> Iterator[Finding]:
        tasks = rule_tasks(self._location_body, self._scope.images, self._facts)
        for result in self._runner.run(check_rules, tasks, stage="checking rules"):
            yield from map(finding_of, result["findings"])


@contextmanager
def scratch(location: Location, runner: Runner) -> Iterator[Staging]:
    """A folder for files between tasks: on this machine if the workers are, else beside the graph."""
    if runner.is_here:
        with tempfile.TemporaryDirectory(prefix="omnigraph-verify-") as folder:
            yield new_staging(locate(folder))
        return
    staging = new_staging(location)
    try:
        yield staging
    finally:
        staging.remove()


# ---- size ------------------------------------------------------------------------------------------------------------

_WIDTHS = {"String": 24, "List": 48, "Blob": 24, "Bool": 1}


def _work_bytes(line: Line, *, full: bool) -> int:
    """About how much of a table is read, each column once: ids, endpoints, @unique values and places of blobs of all
    rows; what indices hold of as many rows as a sample has, but for vectors, of which that is a handful. Or all of it.
    """
    if line.is_base:
        return 0
    t, rows = line.type, line.pin.rows or 0
    ids = 24 * (3 if t.kind == "edge" else 1)
    if full:
        return rows * (ids + sum(_width(t, name) for name in t.by_name))
    unique = {name for c in t.constraints if c.kind == "unique" for name in c.properties}
    unique |= {p.name for p in t.properties if p.type.kind == "Blob"}
    looked_up = {name for c in t.constraints if c.kind in ("index", "key") for name in c.properties} - unique
    looked_up -= {p.name for p in t.properties if p.type.kind == "Vector"}
    every = rows * (ids + sum(_width(t, name) for name in unique & t.by_name.keys()))
    return every + min(rows, SAMPLE_ROWS) * sum(_width(t, name) for name in looked_up & t.by_name.keys())


def _width(t: EntityType, name: str) -> int:
    kind = t.by_name[name].type
    return 4 * kind.dimension if kind.dimension else _WIDTHS.get(kind.kind, 8)
