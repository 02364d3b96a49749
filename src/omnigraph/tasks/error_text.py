"""Typed errors of Spark workers: only the text of their traceback is returned to the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.errors import OmnigraphError


@contextmanager
def with_remedy() -> Iterator[None]:
    """Add the condition and the remedy of a typed error to its traceback, and leave out the frames of this package."""
    try:
        yield
    except OmnigraphError as error:
        # A new error, because the traceback of the old one has the frames of this package.
        clean_error = type(error)(**error.fields)
        clean_error.add_note(f"[{error.condition}] {error.remedy}")
        raise clean_error from None
