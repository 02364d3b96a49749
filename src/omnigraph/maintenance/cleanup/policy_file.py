"""Reading a policy file: strict, with the place of everything that is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from omnigraph.config.durations import DURATION_FORM, duration_text, parse_duration
from omnigraph.config.yaml import Entry, Text, Value, parse_yaml
from omnigraph.errors import PolicyFileError
from omnigraph.language.schema.source import Place
from omnigraph.maintenance.cleanup.policy import (
    KEYS,
    MANIFEST_MIN_S,
    MANIFEST_S,
    ORPHANS_MIN_S,
    ORPHANS_S,
    RULE_KEYS,
    SECTION,
    Policy,
    Rule,
)
from omnigraph.maintenance.maintain.policy import SECTIONS
from omnigraph.write.violations import nearest


class _Text(Text):
    """The same text, with errors about a policy file."""

    def error(self, place: Place, detail: str) -> PolicyFileError:
        message = detail.replace("a pipeline file", "a policy file")
        return PolicyFileError(**self.fields(place, message), more="", problems=[])


def parse(text: str, *, file: str) -> Policy:
    source = _Text(file, text)
    return _Reader(source).policy(parse_yaml(source, os.environ))


class _Reader:
    def __init__(self, source: _Text) -> None:
        self._source = source

    def policy(self, root: Value) -> Policy:
        entries = self._mapping(root, "a policy file is a mapping, as in: keep: 10")
        section = entries.get(SECTION)
        if section is not None:
            # Other sections belong to other commands, which check them. A limit beside them would have no effect.
            self._require_known(entries, tuple(SECTIONS))
            entries = self._mapping(section.value, f"{SECTION} is a mapping, as in: {{keep: 10}}")
        else:
            self._require_known(entries, (*KEYS, SECTION))
        self._require_known(entries, KEYS)
        branches = tuple(self._branches(entries.get("branches")))
        policy = Policy(
            default=self._rule(entries),
            branches=branches,
            orphans_older_than_s=self._duration(entries.get("orphans_older_than"), ORPHANS_S, ORPHANS_MIN_S),
            manifest_older_than_s=self._duration(entries.get("manifest_older_than"), MANIFEST_S, MANIFEST_MIN_S),
        )
        if all(rule.is_empty for rule in policy.rules()):
            place = root.place if section is None else section.place
            raise self._source.error(place, "it keeps everything: give keep, older_than, or rules in branches.")
        return policy

    def _branches(self, entry: Entry | None) -> Iterator[tuple[str, Rule]]:
        if entry is None:
            return
        form = 'branches maps names and patterns to rules, as in: "tmp/*": {keep: 1}'
        for pattern, section in self._mapping(entry.value, form).items():
            fields = self._mapping(section.value, f"the rule of {pattern} is a mapping, as in: {{keep: 10}}")
            self._require_known(fields, RULE_KEYS)
            rule = self._rule(fields)
            if rule.is_empty:
                raise self._source.error(
                    section.place, f"the rule of {pattern} is empty: give keep, older_than or both."
                )
            yield pattern, rule

    def _rule(self, entries: dict[str, Entry]) -> Rule:
        keep = entries.get("keep")
        older = entries.get("older_than")
        return Rule(
            keep=None if keep is None else self._count(keep),
            older_than_s=None if older is None else self._seconds(older),
        )

    def _count(self, entry: Entry) -> int:
        data: Any = entry.value.data
        if not isinstance(data, int) or isinstance(data, bool) or data < 1:
            raise self._source.error(entry.value.place, "keep is a number of versions, at least 1.")
        return data

    def _seconds(self, entry: Entry) -> float:
        seconds = parse_duration(entry.value.raw)
        if seconds is None:
            raise self._source.error(entry.value.place, f"{entry.key} is {DURATION_FORM}.")
        return seconds

    def _duration(self, entry: Entry | None, otherwise: float, minimum: float) -> float:
        if entry is None:
            return otherwise
        seconds = self._seconds(entry)
        if seconds < minimum:
            raise self._source.error(entry.value.place, f"{entry.key} is at least {duration_text(minimum)}.")
        return seconds

    def _mapping(self, value: Value, form: str) -> dict[str, Entry]:
        if not isinstance(value.data, dict):
            raise self._source.error(value.place, f"{form}.")
        entries: dict[str, Entry] = value.data
        return entries

    def _require_known(self, entries: dict[str, Entry], allowed: Sequence[str]) -> None:
        for key, entry in entries.items():
            if key not in allowed:
                close = nearest(key, allowed)
                hint = f"did you mean {close}?" if close else f"there is {', '.join(allowed)}."
                if key in KEYS and SECTION in allowed:
                    hint = f"it belongs below {SECTION}."
                raise self._source.error(entry.place, f"{key} is not known here; {hint}")
