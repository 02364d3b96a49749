"""The verb lint: a file of queries against a schema, without running them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from omnigraph.cli.files import read_text
from omnigraph.cli.options import Branch, Json, Store, Uri
from omnigraph.cli.output import Answer, count
from omnigraph.cli.target import open_graph, resolve
from omnigraph.cli.text import Lines
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.language.query.lint import Finding, Report
    from omnigraph.language.schema.model import Schema

QueryFile = Annotated[
    str, Option("--query", "--file", metavar="FILE", help="The .gq file; - reads it from stdin.", show_default=False)
]
SchemaFile = Annotated[
    str | None,
    Option("--schema", metavar="FILE", help="The schema, a .pg file, instead of that of a graph.", show_default=False),
]


def lint(
    file: QueryFile,
    uri: Uri = None,
    store: Store = None,
    schema: SchemaFile = None,
    branch: Branch = "main",
    json: Json = False,
) -> Answer:
    """Check every query of a file against a schema: names, types, and what is likely a mistake.

    Errors make the exit code 1, warnings do not. Nothing is run.
    """
    text = read_text(file)
    known = _schema(schema, uri, store, branch)
    from omnigraph.language.query.lint import lint_text

    report = lint_text(text, known, file=file)
    return Answer(report.to_json(), _text(report), json, 1 if report.status == "error" else 0)


def _schema(schema: str | None, uri: str | None, store: str | None, branch: str) -> Schema:
    if schema is None and uri is None and store is None:
        detail = "there is no schema to check against: give a .pg file with --schema, or a graph by its URI or --store."
        raise UsageError(detail=detail)
    if schema is None:
        with open_graph(resolve(uri, store)) as graph:
            return graph.schema(branch)
    if uri is not None or store is not None:
        raise UsageError(detail="the schema is named twice: by --schema and by a graph.")
    from omnigraph.language.schema.syntax.parse import parse_schema

    return parse_schema(read_text(schema), file=schema)


def _text(report: Report) -> Lines:
    lines: Lines = [_finding(report.file, f) for f in report.findings]
    errors = sum(f.severity == "error" for f in report.findings)
    warnings = len(report.findings) - errors
    told = f"{count(errors, 'error', 'errors')}, {count(warnings, 'warning', 'warnings')}"
    lines.append(f"{report.file}: {count(len(report.queries), 'query', 'queries')}, {told}")
    return lines


def _finding(file: str, f: Finding) -> str:
    place = file if f.line is None else f"{file}:{f.line}:{f.column}"
    code = f"{f.code}: " if f.code else ""
    shown = f"\n{f.excerpt}" if f.excerpt else ""
    return f"{place}: {f.severity}: {code}{f.message}{shown}"
