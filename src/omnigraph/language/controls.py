"""Characters that act instead of being shown: what a terminal obeys, and what turns the order of a line around.

C0 and C1 controls, DEL, the embeddings, overrides and isolates of bidirectional text, and lone surrogates, which stand
for bytes that are no text. Names that people give may hold none of them; whatever else holds some is shown with
escapes. The escapes are those of JSON, so that a document with them says the same as without.
"""

from __future__ import annotations

import re

_ACTING = r"\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROLS = re.compile(rf"[\x00-\x1f{_ACTING}]")
_CONTROLS_BUT_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f{_ACTING}]")


def has_controls(text: str) -> bool:
    return _CONTROLS.search(text) is not None


def escaped(text: str, *, lines: bool = True) -> str:
    """The text as it can be shown. `lines`: tabs and line ends stay, because the text may have several lines."""
    pattern = _CONTROLS_BUT_LINES if lines else _CONTROLS
    return pattern.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
