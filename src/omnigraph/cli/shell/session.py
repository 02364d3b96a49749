"""One session of the shell: the state that its commands set, and the running of statements.

1. command   changes what later statements run on, or shows something
2. query     a body alone becomes a query, with the session's parameters that it uses declared; the query is checked
             against the schema of the state, and read or written as `query` and `mutate` do
3. tell      the answer on stdout; how long it took, and failures, on stderr

A failure ends its statement and nothing else. Ctrl-C does the same where somebody sits at a terminal.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from omnigraph.cli.commands.mutate import head as mutation_head
from omnigraph.cli.commands.mutate import lines_of
from omnigraph.cli.commands.query import envelope, plain, rows_table, sink_of, write_rows
from omnigraph.cli.commands.query import head as query_head
from omnigraph.cli.failure import Failure, describe, report, report_traceback
from omnigraph.cli.files import parse_json
from omnigraph.cli.output import Answer, Table, count, show, write_text
from omnigraph.cli.shell.text import BODIES, Statement, words_of, wrapped
from omnigraph.errors import OmnigraphError, QueryError, UsageError
from omnigraph.language.schema.source import did_you_mean

if TYPE_CHECKING:
    from omnigraph.cli.shell.complete import Known
    from omnigraph.cli.target import Target
    from omnigraph.graph.handle import Graph
    from omnigraph.graph.prepared_query import PreparedQuery
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.language.schema.model import Schema
    from omnigraph.query.mutation.result import MutationResult
    from omnigraph.query.result import Result

FORMATS = ("table", "json", "jsonl", "csv", "kv")
SHOWN_ROWS = 1000
"""So many rows of a table are drawn on a terminal; the other forms, and files, have them all."""
HELP = """\
A query runs when its braces are closed and the line is complete:
  match { $p: Person } return { $p.name } limit 10
  query of($slug: String) { match { $p: Person { slug: $slug } } return { $p } }
  update Person set { score: 1 } where slug = "ada"
Esc Enter begins a new line; an empty line, or a semicolon, ends what was typed. Tab completes.

:schema [TYPE]      the schema, or one type with its edges
:explain QUERY      the steps of a read query instead of its rows; :explain on, off: of all
:params {JSON}      values for parameters; :params shows them
:branch [NAME]      run on this branch; without a name, list them
:commit [ID]        read the state of this commit; without an id, the newest again
:as-of [TIME]       read the state of this time; without a time, the newest again
:format [FORM]      table, json, jsonl, csv or kv
:help               this text
:quit               leave, as Ctrl-D does"""


class Quit(Exception):
    """The user leaves."""


@dataclass
class Session:
    """`file` is what errors call the input. `interactive`: somebody sits at a terminal."""

    graph: Graph
    target: Target
    branch: str = "main"
    commit: str | None = None
    as_of: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    format: str = "table"
    explain: bool = False
    file: str = "<query>"
    interactive: bool = False
    quiet: bool = False
    _schema: Schema | None = field(default=None, init=False, repr=False)

    @property
    def label(self) -> str:
        """What the prompt says: graph, branch, and the older state if one is read."""
        name = self.target.uri.rstrip("/").rpartition("/")[2]
        older = self.commit or self.as_of
        return f"{name}:{self.branch}{f'@{older}' if older else ''}"

    # ---- statements

    def run(self, statement: Statement) -> int:
        """The exit code that the statement alone would have. Quit if the user leaves."""
        try:
            self.execute(statement)
        except KeyboardInterrupt as error:
            if not self.interactive:
                raise
            return self._fail(error)
        except (Quit, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001  whatever it is gets a sentence, and the shell goes on
            return self._fail(error)
        return 0

    def execute(self, statement: Statement) -> None:
        text = statement.text.rstrip().removesuffix(";").rstrip()
        command = re.match(r":[ \t]*([\w-]*)\s*(.*)", text, re.DOTALL)
        if command is None:
            self._query(text, statement.line, explain=self.explain)
            return
        name, rest = command.groups()
        if name == "explain" and rest not in ("", "on", "off"):
            self._query(rest, statement.line + text.count("\n", 0, command.start(2)), explain=True)
            return
        run = COMMANDS.get({"q": "quit", "exit": "quit"}.get(name, name))
        if run is None:
            raise UsageError(detail=f"there is no command :{name}.{did_you_mean(name, COMMANDS)}")
        run(self, rest)

    def _fail(self, error: BaseException) -> int:
        if os.environ.get("OMNIGRAPH_DEBUG", "") not in ("", "0"):
            report_traceback(error)
        failure: Failure = describe(error)
        if type(error) is UsageError:
            failure = replace(failure, remedy=":help tells what the shell knows.")
        sys.stdout.flush()
        report(failure, as_json=False)
        return failure.exit_code

    # ---- queries

    def _query(self, text: str, line: int, *, explain: bool) -> None:
        started = time.perf_counter()
        snapshot = self.snapshot()
        words = words_of(text)
        bare = bool(words) and words[0].text in BODIES
        source = wrapped(text, self._declared(text, snapshot.schema)) if bare else text
        try:
            statement = self.graph.prepare(
                source, branch=self.branch, commit=self.commit, as_of=self.as_of, query_file=self.file
            )
            values = {p.name: self.params[p.name] for p in statement.params if p.name in self.params}
            if statement.is_write:
                self._write(statement, values, started, explain=explain)
            else:
                self._read(statement, values, started, explain=explain)
        except QueryError as error:
            raise moved(error, line - 1 - bare) from error
        finally:
            self._schema = None

    def _read(self, statement: PreparedQuery, values: dict[str, Any], started: float, *, explain: bool) -> None:
        result = cast("Result", statement.run(values))
        if explain:
            show(Answer(result.explain(), [result.explained()], self.format == "json"))
            return
        self._rows(result)
        self._timed(count(result.num_rows, "row", "rows"), started)

    def _rows(self, result: Result) -> None:
        if self.format == "json":
            show(Answer(envelope(result, self.target), [], True))
        elif self.format == "table":
            most = SHOWN_ROWS if self.interactive and sys.stdout.isatty() else None
            lines: list[str | Table] = [rows_table(result, most=most)]
            if most is not None and result.num_rows > most:
                lines.append(f"… {most:,} of {result.num_rows:,} rows are shown")
            show(Answer({}, lines, False))
        else:
            with sink_of(None) as sink:
                write_rows(result, query_head(result, self.target), self.format, sink)

    def _write(self, statement: PreparedQuery, values: dict[str, Any], started: float, *, explain: bool) -> None:
        if explain:
            raise UsageError(detail=f"{statement.name} writes, and explain shows how a query reads.")
        self._written(cast("MutationResult", statement.run(values)))
        self._timed("done", started)

    def _written(self, done: MutationResult) -> None:
        document = mutation_head(done, self.target)
        if self.format == "json":
            show(Answer({**document, "rows": plain(done.to_pylist())}, [], True))
        elif self.format == "table":
            show(Answer({}, lines_of(done), False))
        else:
            write_text(sys.stderr, f"→ {done}\n")
            if done.returned is not None:
                with sink_of(None) as sink:
                    write_rows(done.rows(), document, self.format, sink)

    def _timed(self, what: str, started: float) -> None:
        if not self.quiet:
            write_text(sys.stderr, f"{what} in {(time.perf_counter() - started) * 1000:,.1f} ms\n")

    def _declared(self, body: str, schema: Schema) -> str:
        """The session's parameters that a body alone uses, with the types that their values have."""
        from omnigraph.cli.shell.complete import variable_types

        words = words_of(body)
        bound = variable_types(words, schema)
        used = dict.fromkeys(w.text[1:] for w in words if w.kind == "variable" and w.text not in bound)
        return ", ".join(f"${name}: {type_of(self.params[name])}" for name in used if name in self.params)

    # ---- state

    def snapshot(self) -> Snapshot:
        return self.graph.snapshot(self.branch, commit=self.commit, as_of=self.as_of)

    def known(self) -> Known:
        """What completion may name: of the state that the next statement meets."""
        from omnigraph.cli.shell.complete import Known

        if self._schema is None:
            self._schema = self.snapshot().schema
        types = tuple(t.name for t in (*self._schema.interfaces, *self._schema.types()))
        branches = tuple(b.name for b in self.graph.branches())
        words = {"schema": types, "branch": branches, "format": FORMATS, "explain": ("on", "off")}
        return Known(self._schema, {name: words.get(name, ()) for name in COMMANDS})

    def _set(self, **state: str | None) -> None:
        """Another state, if there is one: a name that leads nowhere changes nothing."""
        before = {name: getattr(self, name) for name in state}
        for name, value in state.items():
            setattr(self, name, value)
        try:
            self.snapshot()
        except OmnigraphError:
            for name, value in before.items():
                setattr(self, name, value)
            raise
        self._schema = None

    # ---- commands

    def _help(self, _: str) -> None:
        show(Answer({}, [HELP], False))

    def _quit(self, _: str) -> None:
        raise Quit

    def _show_schema(self, name: str) -> None:
        from omnigraph.language.schema.syntax.show import render

        schema = self.snapshot().schema
        show(Answer({}, [render(only(schema, name)) if name else schema.source or render(schema)], False))

    def _explain(self, rest: str) -> None:
        self.explain = {"on": True, "off": False}.get(rest, not self.explain)
        self._say(f"explain is {'on' if self.explain else 'off'}")

    def _params(self, rest: str) -> None:
        if not rest:
            show(Answer({}, [json.dumps(self.params, ensure_ascii=False, indent=2)], False))
            return
        self.params = params_of(rest)

    def _branch(self, name: str) -> None:
        if name:
            self._set(branch=name, commit=None, as_of=None)
            return
        found = self.graph.branches()
        rows = [["*" if b.name == self.branch else "", b.name, b.commit] for b in found]
        show(Answer({}, [Table(("", "branch", "commit"), rows)], False))

    def _commit(self, commit: str) -> None:
        self._set(commit=commit or None, as_of=None)

    def _as_of(self, moment: str) -> None:
        self._set(as_of=moment or None, commit=None)

    def _format(self, form: str) -> None:
        if not form:
            show(Answer({}, [self.format], False))
            return
        self.format = form_of(form)

    def _say(self, text: str) -> None:
        if not self.quiet:
            write_text(sys.stderr, f"{text}\n")


COMMANDS: dict[str, Callable[[Session, str], None]] = {
    "schema": Session._show_schema,
    "explain": Session._explain,
    "params": Session._params,
    "branch": Session._branch,
    "commit": Session._commit,
    "as-of": Session._as_of,
    "format": Session._format,
    "help": Session._help,
    "quit": Session._quit,
}


def moved(error: QueryError, lines: int) -> QueryError:
    """The same error of a text that begins so many lines further down. One without a place is left as it is."""
    if "line" not in error.fields or not lines:
        return error
    return type(error)(**{**error.fields, "line": error.fields["line"] + lines})


def form_of(text: str) -> str:
    if text in ("arrow", "parquet"):
        raise UsageError(detail=f"{text} is a form of files: `omnigraph query --format {text} --out FILE` writes one.")
    if text not in FORMATS:
        raise UsageError(detail=f"a form is one of {', '.join(FORMATS)}, not {text}.{did_you_mean(text, FORMATS)}")
    return text


def params_of(text: str) -> dict[str, Any]:
    try:
        found = parse_json(text)
    except ValueError as error:
        raise UsageError(detail=f"the parameters are no JSON: {error}.") from error
    if not isinstance(found, dict):
        raise UsageError(detail='parameters are one JSON object, as {"name": "Ada"}.')
    return {name.removeprefix("$"): value for name, value in found.items()}


def type_of(value: Any) -> str:
    """How a parameter of this value is declared. What JSON has no form of, a date, takes a query that declares it."""
    if isinstance(value, list):
        kinds = {"String" if isinstance(v, list) else type_of(v) for v in value}
        return f"[{'F64' if kinds == {'I64', 'F64'} else next(iter(kinds), 'String')}]"
    for kind, name in ((bool, "Bool"), (int, "I64"), (float, "F64")):
        if isinstance(value, kind):
            return name
    return "String?" if value is None else "String"


def only(schema: Schema, name: str) -> Schema:
    """One type, with its interfaces and the edges at it."""
    interfaces = {i.name: i for i in schema.interfaces}
    if name in schema.node:
        node = schema.node[name]
        shown = tuple(interfaces[i] for i in node.implements)
        return replace(schema, interfaces=shown, nodes=(node,), edges=schema.incident_edges(name))
    edges = {**schema.edge, **{e.name[:1].lower() + e.name[1:]: e for e in schema.edges}}
    if name in edges:
        return replace(schema, interfaces=(), nodes=(), edges=(edges[name],))
    if name in interfaces:
        nodes = tuple(n for n in schema.nodes if name in n.implements)
        return replace(schema, interfaces=(interfaces[name],), nodes=nodes, edges=())
    known = [*interfaces, *schema.node, *schema.edge]
    raise UsageError(detail=f"the schema has no type {name}.{did_you_mean(name, known)}")
