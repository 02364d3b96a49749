"""Retention policy: how many versions of a line are kept, and for how long, for each branch.

A rule keeps the newest `keep` versions of every table's line of a branch, and every version that was the newest one
within the last `older_than_s` seconds. With both, a version is removed only if both release it. A branch without a
rule keeps everything.

A policy file is YAML. The fields of cleanup are at the top, or below `cleanup:`, beside sections of other commands:

    cleanup:
      keep: 10
      older_than: 30d
      orphans_older_than: 7d
      manifest_older_than: 3d
      branches:
        main: {keep: 100, older_than: 90d}
        "tmp/*": {keep: 1}

A name without a star is for that branch; patterns are tried in the order of the file; `keep` and `older_than` outside
of `branches` are for the rest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from omnigraph.arguments import mapping, number
from omnigraph.commit.operation import PREPARED_MAX_S
from omnigraph.config.durations import duration_text, seconds_of
from omnigraph.errors import FileUnreadable, UsageError

ORPHANS_S = 7 * 86_400.0
ORPHANS_MIN_S = PREPARED_MAX_S + 86_400.0
"""Prepared work is used for three days after it was made, and may have been a day in the making: its
files look like those of a crashed writer.
"""
MANIFEST_S = 3 * 86_400.0
MANIFEST_MIN_S = 300.0
"""A writer that is stopped inside its swap of a head is refused because of the versions of the manifest that came
since, or, after a minute, because it reads the head again. Five minutes of versions are more than the first needs.
"""
RECOVERY_KEEP = 3
RECENT_S = 3600.0


@dataclass(frozen=True)
class Rule:
    """Retention of one line. None: no such limit; both None is no rule."""

    keep: int | None = None
    older_than_s: float | None = None

    @property
    def is_empty(self) -> bool:
        return self.keep is None and self.older_than_s is None

    def releases(self, *, rank: int, superseded_s_ago: float | None) -> bool:
        """`rank` counts from 0, the newest. The newest is never removed."""
        if self.is_empty or superseded_s_ago is None:
            return False
        if self.keep is not None and rank < self.keep:
            return False
        return self.older_than_s is None or superseded_s_ago >= self.older_than_s

    def __str__(self) -> str:
        parts = []
        if self.keep is not None:
            parts.append(f"beyond the newest {self.keep}")
        if self.older_than_s is not None:
            parts.append(f"replaced at least {duration_text(self.older_than_s)} ago")
        return " and ".join(parts) or "kept for good"

    def to_json(self) -> dict[str, Any]:
        older = None if self.older_than_s is None else duration_text(self.older_than_s)
        return {"keep": self.keep, "older_than": older}


@dataclass(frozen=True)
class Policy:
    default: Rule = field(default_factory=Rule)
    branches: tuple[tuple[str, Rule], ...] = ()
    orphans_older_than_s: float = ORPHANS_S
    manifest_older_than_s: float = MANIFEST_S

    def rule(self, branch: str) -> Rule:
        """The rule for the lines of a branch."""
        named = dict(self.branches)
        if branch in named:
            return named[branch]
        for pattern, rule in self.branches:
            if fnmatchcase(branch, pattern):
                return rule
        return self.default

    def rules(self) -> list[Rule]:
        """The default rule, then those of branch patterns in order."""
        return [self.default, *(rule for _, rule in self.branches)]

    @property
    def warnings(self) -> list[str]:
        texts = [
            f"the rule of {hidden} is never used: {pattern} comes before it and is for the same branches"
            for hidden, pattern in self._hidden()
        ]
        few = sorted({rule.keep for rule in self.rules() if rule.keep is not None and rule.keep < RECOVERY_KEEP})
        lost = "the states before the last few writes can't be read any more, should one of these have been a mistake"
        if few:
            texts.append(f"keeping {few[0]} of a table's versions is less than {RECOVERY_KEEP}: {lost}")
        elif any(
            rule.keep is None and (rule.older_than_s or 0) < RECENT_S for rule in self.rules() if not rule.is_empty
        ):
            soon = f"versions go that were replaced less than {duration_text(RECENT_S)} ago"
            texts.append(f"without --keep, {soon}: {lost}")
        return texts

    def _hidden(self) -> list[tuple[str, str]]:
        """Patterns that can match nothing because of an earlier one, each with that one."""
        patterns = [p for p, _ in self.branches if _is_pattern(p)]
        return [
            (later, earlier)
            for n, later in enumerate(patterns)
            for earlier in patterns[:n]
            if fnmatchcase(later, earlier)
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            **self.default.to_json(),
            "orphans_older_than": duration_text(self.orphans_older_than_s),
            "manifest_older_than": duration_text(self.manifest_older_than_s),
            "branches": {pattern: rule.to_json() for pattern, rule in self.branches},
        }


def make_policy(
    *,
    keep: int | None = None,
    older_than: str | float | None = None,
    policy: Policy | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    orphans_older_than: str | float | None = None,
    manifest_older_than: str | float | None = None,
) -> Policy:
    """A policy from options: limits, or a file (or its content) instead of them. Seconds, or texts as 7d."""
    if policy is not None:
        if keep is not None or older_than is not None:
            raise UsageError(detail="a policy file replaces --keep and --older-than: give one or the other.")
        effective = policy if isinstance(policy, Policy) else _policy_of(policy)
    elif keep is None and older_than is None:
        detail = "cleanup needs to know what to keep: give --keep N, --older-than DURATION, or both, or --policy FILE."
        raise UsageError(detail=detail)
    else:
        effective = Policy(Rule(keep, _seconds("--older-than", older_than)))
    return _checked(
        Policy(
            default=effective.default,
            branches=effective.branches,
            orphans_older_than_s=_first(
                _seconds("--orphans-older-than", orphans_older_than), effective.orphans_older_than_s
            ),
            manifest_older_than_s=_first(
                _seconds("--manifest-older-than", manifest_older_than), effective.manifest_older_than_s
            ),
        )
    )


def _is_pattern(name: str) -> bool:
    return any(c in name for c in "*?[")


def _first(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _policy_of(policy: Mapping[str, Any] | str | os.PathLike[str]) -> Policy:
    if isinstance(policy, Mapping):
        return policy_from_json(policy)
    return read_policy(os.fspath(policy))


def _checked(policy: Policy) -> Policy:
    for rule in policy.rules():
        if rule.keep is not None and rule.keep < 1:
            raise UsageError(detail=f"--keep is at least 1, not {rule.keep}: the newest version always stays.")
    if policy.orphans_older_than_s < ORPHANS_MIN_S:
        detail = (
            f"--orphans-older-than is at least {duration_text(ORPHANS_MIN_S)}, not "
            f"{duration_text(policy.orphans_older_than_s)}: files that no version refers to may belong to a load "
            "that is still running."
        )
        raise UsageError(detail=detail)
    if policy.manifest_older_than_s < MANIFEST_MIN_S:
        detail = (
            f"--manifest-older-than is at least {duration_text(MANIFEST_MIN_S)}, not "
            f"{duration_text(policy.manifest_older_than_s)}: writers that are at work need the newest versions of the "
            "manifest."
        )
        raise UsageError(detail=detail)
    return policy


# ---- durations -------------------------------------------------------------------------------------------------------


def _seconds(option: str, value: str | float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        return seconds_of(value, option=option)
    seconds = number(option, value)
    if seconds < 0:
        raise UsageError(detail=f"{option} is not negative.")
    return float(seconds)


# ---- files -----------------------------------------------------------------------------------------------------------

RULE_KEYS = ("keep", "older_than")
KEYS = (*RULE_KEYS, "orphans_older_than", "manifest_older_than", "branches")
SECTION = "cleanup"


def read_policy(path: str) -> Policy:
    """A policy file. PolicyFileError shows the place of what is wrong."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnreadable(path=path, detail=str(error)) from error
    return parse_policy(text, file=path)


def parse_policy(text: str, *, file: str = "<policy>") -> Policy:
    from omnigraph.maintenance.cleanup.policy_file import parse

    return parse(text, file=file)


def policy_from_json(body: Mapping[str, Any]) -> Policy:
    """The policy that `Policy.to_json` wrote into a plan, with the same limits as any other."""

    def require_known(of: Mapping[str, Any], keys: Sequence[str]) -> None:
        for key in mapping("policy", of):
            if key not in keys:
                raise UsageError(detail=f"policy has no key {key!r}; it has {', '.join(keys)}.")

    def limit(key: str, otherwise: float | None) -> float | None:
        value = body.get(key)
        return otherwise if value is None else _seconds(key, value)

    def rule(of: Mapping[str, Any]) -> Rule:
        keep = of.get("keep")
        if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool)):
            raise UsageError(detail=f"keep is a number of versions, not {keep!r}.")
        return Rule(keep, _seconds("older_than", of.get("older_than")))

    require_known(body, KEYS)
    orphans, manifest = limit("orphans_older_than", ORPHANS_S), limit("manifest_older_than", MANIFEST_S)
    assert orphans is not None
    assert manifest is not None
    branches = mapping("branches of policy", body.get("branches") or {})
    for of in branches.values():
        require_known(of, RULE_KEYS)
    named = tuple((pattern, rule(of)) for pattern, of in branches.items())
    return _checked(Policy(rule(body), named, orphans, manifest))
