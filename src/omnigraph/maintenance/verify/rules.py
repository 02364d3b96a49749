"""Rules about single rows, checked over all rows: only with `full`. One task per group of fragments.

Every column but blobs is read, so that unreadable data is found as well. The rules are those of every write
(`write/validate/fields.py`); an id must be the one of the row's key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.maintenance.verify.findings import Finding
from omnigraph.maintenance.verify.scope import Image, Line, line_json, line_of, location_of
from omnigraph.maintenance.verify.tables import finding_json, grouped, line_finding, opened, tried, unreadable
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.write import pending_view as images
from omnigraph.write.delta import TypeDelta, no_ids
from omnigraph.write.keys import canonical_ids
from omnigraph.write.validate.fields import check_fields

BATCH_ROWS = 16_384


def rule_tasks(
    location_body: Mapping[str, Any], every: Sequence[Image], facts: Mapping[str, Any]
) -> list[dict[str, Any]]:
    lines = {line.id: line for image in every for line in image.lines.values()}
    return [
        {"place": location_body, "line": line_json(line), "fragments": group}
        for line in lines.values()
        if facts.get(line.version_id, {}).get("whole")
        for group in grouped(facts[line.version_id]["fragments"])
    ]


def check_rules(task: Mapping[str, Any]) -> dict[str, Any]:
    location, line = location_of(task["place"]), line_of(task["line"])
    rows_done = 0

    def work() -> list[Finding]:
        nonlocal rows_done
        rows_done = 0
        table = opened(location, line)
        shape = pa.schema([f.with_nullable(True) for f in arrow_schema(line.type) if not _is_blob(line.type, f.name)])
        scanner = table.scanner(
            columns=shape.names,
            fragments=[table.get_fragment(i) for i in task["fragments"]],
            batch_size=BATCH_ROWS,
        )
        findings: list[Finding] = []
        for batch in scanner.to_batches():
            rows = pa.table(batch).select(shape.names).cast(shape)
            rows_done += rows.num_rows
            findings += _check(line, rows)
        return findings

    findings = tried(location, work, lambda why: unreadable(line, why, count=len(task["fragments"])))
    return {"findings": [finding_json(f) for f in findings], "rows_done": rows_done}


def _is_blob(t: EntityType, name: str) -> bool:
    return name in t.by_name and t.by_name[name].type.kind == "Blob"


def _check(line: Line, rows: pa.Table) -> Iterator[Finding]:
    t = line.type
    # Blobs have no rule but "required", which `blobs` checks: an empty column would look like nulls.
    seen = _without_blobs(t)
    delta = TypeDelta(type=seen, rows=rows, deleted=no_ids())
    broken: dict[tuple[str, str], list[str]] = {}
    for violation in check_fields(images.Image(Schema(), {t.name: delta}, None)):  # type: ignore[arg-type]
        broken.setdefault((violation.rule, violation.property or ""), []).append(
            f"{violation.entity_id!r}: {violation.message}"
        )
    for (rule, name), examples in broken.items():
        text = f"rows break the rule {rule} of {name}"
        yield line_finding("broken_rule", line, text, count=len(examples), examples=examples)
    if t.key_properties:
        ids_stored, ids_expected = rows.column("id").combine_chunks(), canonical_ids(t, rows)
        wrong = pc.fill_null(pc.not_equal(ids_stored, ids_expected), True)
        ids = ids_stored.filter(wrong)
        if len(ids):
            text = f"rows have another id than their {', '.join(t.key_properties)} gives"
            yield line_finding("key_mismatch", line, text, count=len(ids), examples=ids[:5].to_pylist())


def _without_blobs(t: EntityType) -> EntityType:
    from dataclasses import replace

    return replace(t, properties=tuple(p for p in t.properties if p.type.kind != "Blob"))
