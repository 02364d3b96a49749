"""Validate: does a write keep every rule of the schema? One evaluator for mutate, load and merge.

Only the delta is looked at, never the whole graph; what counts is the final image, so a value that one statement frees
another one may take. In this order:

1. rows         per row: required, enum, @range, @check
2. endpoints    every new edge has both nodes; no kept edge loses one
3. unique       @unique tuples, among the delta's rows and against the committed rows that stay
4. cardinality  edges per source node, for the sources that the write touches

Each broken rule is a Violation that names type, id and, where it is known, the line. `check` tells the index in the
delta's `rows` as well, for `reject`; a violation without one is about something that the delta removes. `validate`
leaves it out: rows of several statements, less the unchanged ones, are not numbered as the caller gave them. The
rules' names are listed in `problems`.

`cascade` extends node deletes to their edges before validation. `settle` is for loads that put bad lines aside: it
takes out violating rows, and what those leave behind, until the rest is valid. `faults` is for loads that bad lines
refuse: it tells of all that `settle` would take out.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.errors import Violation
from omnigraph.language.schema.model import Schema
from omnigraph.write.delta import Deltas
from omnigraph.write.pending_view import Image
from omnigraph.write.reader import Reader
from omnigraph.write.validate.cardinality import check_cardinality
from omnigraph.write.validate.drop_rejected import faults, reject, settle
from omnigraph.write.validate.endpoints import cascade, check_endpoints
from omnigraph.write.validate.fields import check_fields
from omnigraph.write.validate.unique import check_unique

__all__ = ["cascade", "check", "faults", "reject", "settle", "validate"]


def validate(schema: Schema, deltas: Deltas, reader: Reader) -> list[Violation]:
    return [replace(v, row=None) for v in check(schema, deltas, reader)]


def check(schema: Schema, deltas: Deltas, reader: Reader) -> list[Violation]:
    image = Image(schema, deltas, reader)
    return [*check_fields(image), *check_endpoints(image), *check_unique(image), *check_cardinality(image)]
