"""What `maintain` may do: one policy file for the whole of maintenance, or the same by options.

    optimize:
      branches: [main, "review/*"]      # names and patterns; main by default
      tables: [Person, Knows]           # all by default
      target_rows_per_fragment: 200000
      concurrency: 8
    verify:
      depth: quick                      # or sample, or full
      orphans_older_than: 7d
    budget:
      max_time: 30m                     # optimize begins no new work so long after the start
      max_bytes: 20GiB                  # optimize reads no more, all branches together
      max_rows: 50000000
    cleanup:                            # what `omnigraph cleanup --policy` reads from the same file
      keep: 10
      older_than: 30d

Every section may be left out. A file that holds what cleanup reads at its top, without sections, serves as well.
Without anything about cleanup there is no retention: then nothing may be removed.

Strict: what is unknown is refused with its position, before anything is done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from omnigraph.config.durations import DURATION_FORM, duration_text, parse_duration
from omnigraph.config.sizes import SIZE_FORM, parse_size
from omnigraph.config.yaml import Entry, Text, Value, parse_yaml
from omnigraph.errors import FileUnreadable, PolicyFileError, UsageError
from omnigraph.language.schema.source import Place
from omnigraph.maintenance.cleanup.policy import KEYS, Policy, make_policy, parse_policy, policy_from_json
from omnigraph.storage.manifest.records import MAIN
from omnigraph.write.violations import nearest

Depth = Literal["quick", "sample", "full"]
DEPTHS: tuple[Depth, ...] = ("quick", "sample", "full")
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "optimize": ("branches", "tables", "target_rows_per_fragment", "concurrency"),
    "verify": ("depth", "orphans_older_than"),
    "budget": ("max_time", "max_bytes", "max_rows"),
    "cleanup": (),  # read by cleanup's own reader
}


@dataclass(frozen=True)
class OptimizePart:
    """`branches` are names and patterns; `tables` table keys or type names, None for all."""

    branches: tuple[str, ...] = (MAIN,)
    tables: tuple[str, ...] | None = None
    target_rows_per_fragment: int | None = None
    concurrency: int | None = None


@dataclass(frozen=True)
class VerifyPart:
    depth: Depth = "quick"
    orphans_older_than_s: float | None = None


@dataclass(frozen=True)
class Budget:
    """Limits of what optimize reads, over all branches, and of when it begins new work, from the start of the run."""

    max_time_s: float | None = None
    max_bytes: int | None = None
    max_rows: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_time_s", "max_bytes", "max_rows"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(detail=f"{name.removesuffix('_s')} is more than 0, not {value}.")


@dataclass(frozen=True)
class MaintainPolicy:
    """`retention` is None if none is configured: then cleanup only previews."""

    optimize: OptimizePart = field(default_factory=OptimizePart)
    verify: VerifyPart = field(default_factory=VerifyPart)
    budget: Budget = field(default_factory=Budget)
    retention: Policy | None = None

    def to_json(self) -> dict[str, Any]:
        orphans = self.verify.orphans_older_than_s
        time_s = self.budget.max_time_s
        return {
            "optimize": {**asdict(self.optimize), **_listed(self.optimize)},
            "verify": {
                "depth": self.verify.depth,
                "orphans_older_than": None if orphans is None else duration_text(orphans),
            },
            "budget": {
                "max_time": None if time_s is None else duration_text(time_s),
                "max_bytes": self.budget.max_bytes,
                "max_rows": self.budget.max_rows,
            },
            "cleanup": None if self.retention is None else self.retention.to_json(),
        }


def _listed(part: OptimizePart) -> dict[str, Any]:
    return {"branches": list(part.branches), "tables": None if part.tables is None else list(part.tables)}


def make_maintain_policy(
    policy: MaintainPolicy | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    branches: Sequence[str] | None = None,
    keep: int | None = None,
    older_than: str | float | None = None,
    max_time_s: float | None = None,
    max_bytes: int | None = None,
) -> MaintainPolicy:
    """A policy from a file, its content or a value; options take precedence.

    UsageError if retention is configured twice: neither rule has precedence, because cleanup is destructive.
    """
    if policy is None:
        effective = MaintainPolicy()
    elif isinstance(policy, MaintainPolicy):
        effective = policy
    elif isinstance(policy, Mapping):
        effective = policy_of(policy)
    else:
        effective = read_maintain_policy(os.fspath(policy))
    if keep is not None or older_than is not None:
        if effective.retention is not None:
            raise UsageError(detail="the policy says what to keep: leave --keep and --older-than out.")
        effective = replace(effective, retention=make_policy(keep=keep, older_than=older_than))
    if branches:
        effective = replace(effective, optimize=replace(effective.optimize, branches=tuple(branches)))
    budget = effective.budget
    if max_time_s is not None:
        budget = replace(budget, max_time_s=max_time_s)
    if max_bytes is not None:
        budget = replace(budget, max_bytes=max_bytes)
    return replace(effective, budget=budget)


def read_maintain_policy(path: str) -> MaintainPolicy:
    """A policy file. PolicyFileError shows the place of what is wrong."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnreadable(path=path, detail=str(error)) from error
    return parse_maintain_policy(text, file=path)


def parse_maintain_policy(text: str, *, file: str = "<policy>") -> MaintainPolicy:
    source = _Text(file, text)
    root = parse_yaml(source, os.environ)
    if not isinstance(root.data, dict):
        raise source.error(root.place, "a policy file is a mapping, as in: cleanup: {keep: 10}")
    reader = _Reader(source)
    if not set(root.data) & set(SECTIONS):
        reader.require_known(root.data, (*SECTIONS, *KEYS))
        return MaintainPolicy(retention=parse_policy(text, file=file))
    parsed = reader.policy(root.data)
    return replace(parsed, retention=parse_policy(text, file=file)) if "cleanup" in root.data else parsed


def policy_of(body: Mapping[str, Any]) -> MaintainPolicy:
    """What `MaintainPolicy.to_json` made, or a mapping of the same form."""
    import orjson

    retention = body.get("cleanup")
    sections = {
        name: {key: value for key, value in section.items() if value is not None}
        if isinstance(section, Mapping)
        else section
        for name, section in body.items()
        if name != "cleanup" and section is not None
    }
    # JSON is YAML: one reader checks both.
    try:
        text = orjson.dumps(sections).decode()
    except orjson.JSONEncodeError as error:
        raise UsageError(detail=f"policy holds something that is no JSON: {error}.") from error
    parsed = parse_maintain_policy(text) if sections else MaintainPolicy()
    return parsed if retention is None else replace(parsed, retention=make_policy(policy=policy_from_json(retention)))


# ---- reading ---------------------------------------------------------------------------------------------------------


class _Text(Text):
    """The same text, with errors about a policy file."""

    def error(self, place: Place, detail: str) -> PolicyFileError:
        message = detail.replace("a pipeline file", "a policy file")
        return PolicyFileError(**self.fields(place, message), more="", problems=[])


@dataclass(frozen=True)
class _Reader:
    source: _Text

    def require_known(self, entries: Mapping[str, Entry], allowed: Sequence[str]) -> None:
        for key, entry in entries.items():
            if key not in allowed:
                close = nearest(key, allowed)
                hint = f"did you mean {close}?" if close else f"there is {', '.join(allowed)}."
                raise self.source.error(entry.place, f"{key} is not known here; {hint}")

    def policy(self, root: Mapping[str, Entry]) -> MaintainPolicy:
        self.require_known(root, tuple(SECTIONS))
        sections = {name: self._section(entry) for name, entry in root.items() if name != "cleanup"}
        return MaintainPolicy(
            optimize=self._optimize(sections.get("optimize", {})),
            verify=self._verify(sections.get("verify", {})),
            budget=Budget(
                max_time_s=self._seconds(sections.get("budget", {}).get("max_time")),
                max_bytes=self._size(sections.get("budget", {}).get("max_bytes")),
                max_rows=self._count(sections.get("budget", {}).get("max_rows"), minimum=1),
            ),
        )

    def _optimize(self, fields: Mapping[str, Entry]) -> OptimizePart:
        branches = tuple(self._names(fields.get("branches")))
        tables = tuple(self._names(fields.get("tables")))
        return OptimizePart(
            branches=branches or (MAIN,),
            tables=tables or None,
            target_rows_per_fragment=self._count(fields.get("target_rows_per_fragment"), minimum=2),
            concurrency=self._count(fields.get("concurrency"), minimum=1),
        )

    def _verify(self, fields: Mapping[str, Entry]) -> VerifyPart:
        depth: Depth = "quick"
        if "depth" in fields:
            value = fields["depth"].value
            valid = next((d for d in DEPTHS if d == value.data), None)
            if valid is None:
                raise self.source.error(value.place, f"depth is one of {', '.join(DEPTHS)}.")
            depth = valid
        return VerifyPart(depth, self._seconds(fields.get("orphans_older_than")))

    def _section(self, entry: Entry) -> dict[str, Entry]:
        allowed = SECTIONS[entry.key]
        if not isinstance(entry.value.data, dict):
            raise self.source.error(entry.value.place, f"{entry.key} is a mapping with {', '.join(allowed)}.")
        entries: dict[str, Entry] = entry.value.data
        self.require_known(entries, allowed)
        return entries

    def _names(self, entry: Entry | None) -> Iterator[str]:
        if entry is None:
            return
        values = entry.value.data if isinstance(entry.value.data, list) else [entry.value]
        for item in values:
            if not isinstance(item, Value) or not item.raw.strip():
                raise self.source.error(entry.value.place, f"{entry.key} is a list of names, as in: [main].")
            yield item.raw

    def _count(self, entry: Entry | None, *, minimum: int) -> int | None:
        if entry is None:
            return None
        data = entry.value.data
        if not isinstance(data, int) or isinstance(data, bool) or data < minimum:
            raise self.source.error(entry.value.place, f"{entry.key} is a number of at least {minimum}.")
        return data

    def _seconds(self, entry: Entry | None) -> float | None:
        if entry is None:
            return None
        seconds = parse_duration(entry.value.raw)
        if not seconds:
            raise self.source.error(entry.value.place, f"{entry.key} is {DURATION_FORM}.")
        return seconds

    def _size(self, entry: Entry | None) -> int | None:
        if entry is None:
            return None
        size_bytes = parse_size(entry.value.raw)
        if not size_bytes:
            raise self.source.error(entry.value.place, f"{entry.key} is {SIZE_FORM}.")
        return size_bytes
