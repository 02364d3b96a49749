"""Control characters: those that a terminal executes, and those that reverse the order of a line.

C0 and C1 controls, DEL, the embeddings, overrides and isolates of bidirectional text, and lone surrogates, which stand
for bytes that are no text. Names must not hold any of them; all other text is shown with escapes. The escapes are those
of JSON, so that an escaped JSON document has the same meaning.
"""

from __future__ import annotations

import re

_CONTROL_RANGES = r"\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROLS = re.compile(rf"[\x00-\x1f{_CONTROL_RANGES}]")
_CONTROLS_BUT_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f{_CONTROL_RANGES}]")


def has_controls(text: str) -> bool:
    return _CONTROLS.search(text) is not None


def escaped(text: str, *, lines: bool = True) -> str:
    """The text with controls escaped. `lines`: tabs and line ends stay, because the text may have several lines."""
    pattern = _CONTROLS_BUT_LINES if lines else _CONTROLS
    return pattern.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
