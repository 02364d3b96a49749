"""Structured log lines: an event and its fields as `key=value`, on the logger of the module that reports it.

    rolled back graph=/data/people branch=main epoch=17 table=person,knows reason="its writer crashed"

Common fields: `graph` (address), `branch`, `epoch`, `table` (type ids, or the folder of a table). A value with white
space, quotes, `=` or control characters is a JSON string, so one event is always one line. Handlers find the fields
unformatted in the record's `fields`.
"""

from __future__ import annotations

import json
import logging
import re

_PLAIN = re.compile(r"[^\s\"=\x00-\x1f\x7f-\x9f]+")


def log_event(logger: logging.Logger, level: int, event: str, **fields: object) -> None:
    """Log one line at `level`. Fields that are None are left out; a list or tuple is joined with commas."""
    if logger.isEnabledFor(level):
        present = {key: value for key, value in fields.items() if value is not None}
        text = " ".join([event, *(f"{key}={_text(value)}" for key, value in present.items())])
        logger.log(level, "%s", text, extra={"fields": present}, stacklevel=2)


def _text(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
