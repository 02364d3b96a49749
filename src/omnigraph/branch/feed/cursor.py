"""The position of a consumer in a change feed, as an opaque text that may be kept anywhere.

A cursor names the branch incarnation and the commit that was read in full. Inside of a step it also names the commit
that the step leads to, and the last row that was read: a step may cover several commits, and which ones depends on what
cleanup has removed, so a number of rows alone would mean something else later. The row is named by type id and entity
id, not counted, so that it means the same whatever types a consumer chooses.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import orjson

from omnigraph.errors import CommitNotFound, InvalidCursor
from omnigraph.language import identifiers as form
from omnigraph.storage.manifest.records import Head
from omnigraph.storage.manifest.table import Manifest

PREFIX = "feed1."


class Position(NamedTuple):
    """The last row that was read of a step: nodes before edges, then by type name, then by entity id."""

    type_id: str
    entity_id: str


@dataclass(frozen=True)
class Cursor:
    """`commit` was read in full; None is the state before the first commit. Of the step from there to `to`, rows up to
    `position` were read as well.
    """

    incarnation: str
    commit: str | None
    to: str | None = None
    position: Position | None = None

    def __str__(self) -> str:
        body = [self.incarnation, self.commit, self.to, self.position and list(self.position)]
        return PREFIX + base64.urlsafe_b64encode(orjson.dumps(body)).decode().rstrip("=")

    @staticmethod
    @lru_cache(maxsize=64)  # a consumer that polls passes the same cursor each time
    def parse(text: str) -> Cursor:
        try:
            encoded = text.removeprefix(PREFIX)
            body = orjson.loads(base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True))
            incarnation, commit, to, position = form.sequence(body)
            if not text.startswith(PREFIX) or (to is None) != (position is None):
                raise form.Malformed("no cursor")
            return Cursor(
                form.incarnation(incarnation),
                form.optional(form.token, commit),
                form.optional(form.token, to),
                None if position is None else Position(form.type_id(position[0]), form.text(position[1])),
            )
        except (ValueError, TypeError, LookupError, binascii.Error) as error:
            raise InvalidCursor(cursor=text) from error


def read_cursor(manifest: Manifest, head: Head, text: str) -> Cursor:
    """The cursor that a text encodes, or the one after the commit that it names."""
    if text.startswith(PREFIX):
        return Cursor.parse(text)
    try:
        return Cursor(head.incarnation, manifest.record(form.token(text)).commit)
    except (form.Malformed, CommitNotFound) as error:
        raise InvalidCursor(cursor=text) from error
