"""Verbs that touch no graph."""

from __future__ import annotations

from omnigraph.cli.options import Json
from omnigraph.cli.output import Answer


def version(json: Json = False) -> Answer:
    """Show the version of omnigraph, and of Python and Lance below it."""
    import platform
    from importlib.metadata import version as installed

    import omnigraph

    document = {"version": omnigraph.__version__, "python": platform.python_version(), "lance": installed("pylance")}
    line = f"omnigraph {document['version']} (Python {document['python']}, Lance {document['lance']})"
    return Answer(document, [line], json)
