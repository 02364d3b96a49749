"""Tags: names for commits, in the manifest's config.

    tag:<name>   {"commit", "at", "nonce", "by"?, "message"?, "crc"}

A tag never moves. It is set and deleted together with `refs` (`branch/tags.py`), and cleanup keeps every version that
its commit pins. Lance's own tags are something else: they name one version of one table.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import orjson

from omnigraph.language import identifiers as form
from omnigraph.storage.manifest.records import require_sum, with_sum

if TYPE_CHECKING:
    from omnigraph.storage.manifest.table import Manifest

TAG = "tag:"


@dataclass(frozen=True)
class Tag:
    """One tag. `nonce` distinguishes two creations of the same name."""

    name: str
    commit: str
    created_at_us: int
    nonce: str
    actor: str | None = None
    message: str | None = None

    @property
    def key(self) -> str:
        return TAG + self.name

    @property
    def created_at(self) -> datetime:
        return datetime.fromtimestamp(self.created_at_us / 1e6, UTC)

    def dumps(self) -> str:
        body = {
            "commit": self.commit,
            "at": self.created_at_us,
            "nonce": self.nonce,
            "by": self.actor,
            "message": self.message,
        }
        return with_sum({k: v for k, v in body.items() if v is not None})

    @staticmethod
    def loads(name: str, text: str) -> Tag:
        """HostileOrDamagedManifest if it is not the value of a tag."""
        with form.reading(f"the tag {form.shown(name)}"):
            require_sum(text, is_optional=False)
            body = form.mapping(orjson.loads(text))
            return Tag(
                name=form.branch(name),
                commit=form.token(body["commit"]),
                created_at_us=form.time_us(body["at"]),
                nonce=form.token(body["nonce"]),
                actor=form.optional(form.text, body.get("by")),
                message=form.optional(form.text, body.get("message")),
            )


def read_tags(manifest: Manifest) -> dict[str, Tag]:
    """All tags by name, of the newest version of the manifest."""
    _, config = manifest.settings()
    names = (key.removeprefix(TAG) for key in sorted(config) if key.startswith(TAG))
    return {name: Tag.loads(name, config[TAG + name]) for name in names}
