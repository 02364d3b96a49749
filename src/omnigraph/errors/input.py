"""Errors of what is written or read: rows, types, filters, files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from omnigraph.errors.base import OmnigraphError, Shown


@dataclass(frozen=True)
class Violation:
    """One row that breaks one rule. `rule` is stable; `line` and `source` are set where the row came from an input."""

    rule: str
    table_key: str
    message: str
    entity_id: str | None = None
    property: str | None = None
    line: int | None = None
    row: int | None = None
    source: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v is not None}


class InputError(OmnigraphError):
    condition = "input_error"


class RowsRefused(InputError):
    """Rows that can't be taken: `count` of them, `by_rule` how many per rule, `violations` the first 20 in the order of
    the input, `shown` the same for people."""

    condition = "rows_refused"
    text = "{rows} can't be taken{rules}.\n{shown}"
    remedy_text = "Correct these rows; nothing was written."
    load_remedy_text: ClassVar[str] = (
        "Correct these rows, or load the rest with --on-error quarantine; nothing was written."
    )

    @property
    def message(self) -> str:
        return self.text.format_map(Shown({**self.fields, "rows": self._rows, "rules": self._rules}))

    @property
    def remedy(self) -> str:
        if "hint" in self.fields:
            return str(self.fields["hint"])
        # Leaving rows out helps where rows of an input are to blame.
        of_a_load = any("source" in v for v in self.fields.get("violations", ()))
        return (self.load_remedy_text if of_a_load else self.remedy_text).format_map(Shown(self.fields))

    @property
    def _rows(self) -> str:
        count = self.fields.get("count", 0)
        return "1 row" if count == 1 else f"{count} rows"

    @property
    def _rules(self) -> str:
        counts = sorted(self.fields.get("by_rule", {}).items(), key=lambda item: (-item[1], item[0]))
        return f" ({', '.join(f'{rule} {count}' for rule, count in counts)})" if counts else ""


class RecordError(RowsRefused):
    """At least one line is no record of the schema; `by_rule` and `violations` have all that is wrong."""

    condition = "invalid_record"
    text = "{rows} of the input can't be loaded{rules}.\n{shown}"
    remedy_text = RowsRefused.load_remedy_text


class ConstraintViolation(RowsRefused):
    """`columns` are those of a table that have a type which their property does not take; then all its rows are
    refused, and `count` counts columns."""

    condition = "constraint_violation"
    text = "{rows} {breaks} a rule of the schema{rules}.\n{shown}"
    columns_remedy_text: ClassVar[str] = (
        "Cast the column to the property's type where the table is made, or give another one by map=COLUMN:PROPERTY; "
        "nothing was written."
    )

    @property
    def message(self) -> str:
        count = self.fields.get("count", 0)
        if "columns" in self.fields:
            columns = "1 column" if count == 1 else f"{count} columns"
            return f"{columns} of the input can't be taken.\n{self.fields['shown']}"
        breaks = "breaks" if count == 1 else "break"
        shown = {**self.fields, "rows": self._rows, "rules": self._rules, "breaks": breaks}
        return self.text.format_map(Shown(shown))

    @property
    def remedy(self) -> str:
        return self.columns_remedy_text if "columns" in self.fields else super().remedy


class KeyConflict(RowsRefused):
    """`table_key` and `entity_id` are those of the first id that exists. A load reports all refused rows as well."""

    condition = "key_conflict"
    text = "{table_key} already has an entity with the id {entity_id!r}."
    remedy_text = "Use upsert (mode merge) to replace it, or choose another key; nothing was written."
    load_remedy_text = (
        "Use upsert (mode merge) to replace what is there, choose other keys, or load the rest with --on-error "
        "quarantine; nothing was written."
    )

    @property
    def message(self) -> str:
        first = super().message
        if "violations" not in self.fields:
            return first
        return f"{first} {self._rows} of the input can't be loaded{self._rules}.\n{self.fields['shown']}"


class UnknownType(InputError):
    condition = "unknown_type"
    text = "the schema has no {kind} type named {type_name!r}."
    remedy_text = "Run `omnigraph schema show` for the types that exist."

    @property
    def remedy(self) -> str:
        suggestion = self.fields.get("suggestion")
        return super().remedy if suggestion is None else f"Did you mean {suggestion}? {super().remedy}"


class UnknownProperty(InputError):
    condition = "unknown_property"
    text = "{table_key} has no property named {property!r}."
    remedy_text = "Run `omnigraph schema show` for the properties that exist."

    @property
    def remedy(self) -> str:
        suggestion = self.fields.get("suggestion")
        return super().remedy if suggestion is None else f"Did you mean {suggestion!r}? {super().remedy}"


class InvalidFilter(InputError):
    condition = "invalid_filter"
    text = "the filter {filter!r} can't be used on {table_key}: {detail}"
    remedy_text = (
        "Compare properties with values, as in: age >= 30 AND name = 'Ada'. Text stands in single quotes, a property "
        "whose name is a word of SQL in backticks."
    )


class FileUnreadable(InputError):
    condition = "file_unreadable"
    text = "{path} can't be read: {detail}"
    remedy_text = "Check the name and that you may read the file; nothing was written."

    @property
    def remedy(self) -> str:
        """`hint` if there is one, which is more specific."""
        return str(self.fields.get("hint") or super().remedy)


class RecordTooLong(InputError):
    """A record of a text input is longer than the limit of this load, which is refused whatever `--on-error` says."""

    condition = "record_too_long"
    text = "line {line} of {path} is longer than {limit_bytes} bytes."
    remedy_text = (
        "Check that the record ends where it should (of CSV: that its quotes are closed), or allow longer ones by "
        "--max-line-bytes; nothing was written."
    )


class FileUnwritable(InputError):
    condition = "file_unwritable"
    text = "{path} can't be written: {detail}"
    remedy_text = "Check the folder, its permissions and the free space."


class ExportFolderTaken(InputError):
    condition = "export_folder_taken"
    text = "{path} can't take an export: {detail}"
    remedy_text = "Name a folder that is empty or does not exist yet, or remove this one first; nothing was written."


class PlanUnusable(InputError):
    condition = "plan_unusable"
    text = "{path} can't be applied: {detail}"
    remedy_text = "Make a new plan of this graph with --plan --json; nothing was changed."
