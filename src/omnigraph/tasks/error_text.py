"""Typed errors where only their text survives: Spark shows the traceback of a worker and keeps nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.errors import OmnigraphError


@contextmanager
def readable() -> Iterator[None]:
    """Put the condition and the remedy of a typed error into its traceback, and leave our own frames out of it."""
    try:
        yield
    except OmnigraphError as error:
        # A new one, because the traceback of the old one names every place of ours that it passed.
        told = type(error)(**error.fields)
        told.add_note(f"[{error.condition}] {error.remedy}")
        raise told from None
