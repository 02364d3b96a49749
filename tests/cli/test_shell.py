"""omnigraph shell: statements from stdin and from a terminal, commands, completion, history."""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

import omnigraph as og
from omnigraph.cli.shell.complete import Known, complete
from omnigraph.cli.shell.prompt import history_of, history_path, interact
from omnigraph.cli.shell.session import COMMANDS, Session
from omnigraph.cli.shell.text import is_whole, split, words_of
from omnigraph.cli.target import Target
from omnigraph.language.schema.syntax.parse import parse_schema
from tests.cli.conftest import SCHEMA as PEOPLE
from tests.cli.conftest import Cli

NAMES = "match { $p: Person } return { $p.name } order { $p.name }"
SCHEMA = """
interface Named { name: String }
node Person implements Named { slug: String @key  born: Date? }
node Company implements Named { slug: String @key  city: String? }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company { role: String? }
"""
KNOWN = Known(parse_schema(SCHEMA), {"schema": ("Person",), "branch": ("main", "trial/a"), "explain": (), "quit": ()})


# ---- where statements end --------------------------------------------------------------------------------------------


def texts(given: str) -> list[str]:
    return [s.text for s in split(given.splitlines(keepends=True))]


@pytest.mark.parametrize(
    "whole",
    [
        "",
        "  // nothing",
        ":help",
        "query q() { match { $p: Person } return { $p } }",
        "query q()\n{\n\n  match { $p: Person }\n  return { $p } }",
        "match { $p: Person } return { $p }",
        "match {\n  $p: Person\n}\nreturn { $p.name }",
        "match { $p: Person } return { $p } order { $p.name }\nlimit 3",
        'insert Person { name: "}{" }',
        "delete Person where true",
        ':params {\n  "a": [1,\n 2]\n}',
        ":explain match { $p: Person } return { $p }",
        "match { $p: Person };",
        "match { $p: Person }\n",
        "hello",
        "match { $p: Person } } return",
    ],
)
def test_enter_runs_what_is_whole(whole: str) -> None:
    assert is_whole(whole)


@pytest.mark.parametrize(
    "part",
    [
        "query q()",
        "query q() { match { $p: Person }",
        "match {",
        "match { $p: Person }",
        "match { $p: Person } return",
        "match { $p: Person } return { $p } limit",
        'match { $p: Person { name: "a',
        "match { /* } return {",
        "match { $p: Person // }",
        "insert Person",
        "update Person set { age: 1 }",
        "update Person set { age: 1 } where",
        "delete Person where age = 1 and",
        ':params { "a":',
        ":explain match { $p: Person }",
        ":explain query q() {\n\n",
    ],
)
def test_enter_goes_on_where_something_is_open(part: str) -> None:
    assert not is_whole(part)


def test_statements_of_a_file_are_told_apart_with_their_lines() -> None:
    given = (
        "// people\n:branch main\n"
        "match { $p: Person }\nreturn { $p }\n// best first\norder { $p.name }\n"
        "query a() { match { $p: Person } return { $p } } query b() {\n\n} ;\n"
        "insert A { }\ninsert B { }\n"
        ":params {\n}\n"
        "match { $p: Person }\n\nnonsense; more\n"
        "match {"
    )
    assert [(s.text, s.line) for s in split(given.splitlines(keepends=True))] == [
        (":branch main", 2),
        ("match { $p: Person }\nreturn { $p }\n// best first\norder { $p.name }", 3),
        ("query a() { match { $p: Person } return { $p } }", 7),
        ("query b() {\n\n} ;", 7),
        ("insert A { }", 10),
        ("insert B { }", 11),
        (":params {\n}", 12),
        ("match { $p: Person }", 14),
        ("nonsense;", 16),
        ("more", 16),
        ("match {", 17),
    ]


def test_a_statement_is_known_to_be_whole_before_the_next_line_comes() -> None:
    seen: list[str] = []

    def lines() -> Iterator[str]:
        yield "query q() { match { $p: Person } return { $p } }\n"
        seen.append("after the query")
        yield ":help\n"
        seen.append("after the command")
        yield "match { $p: Person } return { $p };\n"
        seen.append("after the semicolon")

    for statement in split(lines()):
        seen.append(statement.text)
    assert [s for s in seen if s.startswith("after")] == seen[1::2]


PIECES = st.sampled_from(
    [
        *(
            "query q()",
            "match",
            "return",
            "insert Person",
            "delete Person where",
            "order",
            "limit",
            "path",
            "$p",
            "$p.",
            "$p:",
        ),
        *(
            "{",
            "}",
            "(",
            ")",
            "[",
            "]",
            "<",
            ">",
            "|",
            ":",
            ";",
            ",",
            "=",
            '"',
            '"a b"',
            "\\",
            "//",
            "/*",
            "*/",
            "\n",
            "\n\n",
        ),
        *(":params", ":explain", ":branch x", "knows", "Person", "name", "1", "é", "\t", "@type", "\0", "true"),
    ]
)


def _squeezed(texts: Iterable[str]) -> str:
    return "".join("".join(texts).replace(";", "").split())


def _is_within(part: str, whole: str) -> bool:
    """Whether the characters of the one are those of the other, in their order, with some left out."""
    rest = iter(whole)
    return all(character in rest for character in part)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=12).map(" ".join))
def test_whatever_is_typed_nothing_is_lost_and_nothing_fails(text: str) -> None:
    kept = _squeezed(s.text for s in split(text.splitlines(keepends=True)))
    assert _is_within(kept, _squeezed([text]))
    # A command ends with its line, even inside of a comment: then there is more in it than the words of the whole.
    assert _is_within(_squeezed(w.text for w in words_of(text)), kept)
    is_whole(text)
    complete(text, KNOWN)


# ---- completion ------------------------------------------------------------------------------------------------------


def offered(text: str) -> list[str]:
    return [o.text for o in complete(text, KNOWN).offers]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("match { $p: Pe", ["Person"]),
        ("match { $p: ", ["Person", "Company", "Named"]),
        ("match { $p: Person { sl", ["slug"]),
        ("match { $p: Person $p.", ["name", "slug", "born", "id", "@type"]),
        ("match { $p: Person } return { $p.N", ["name"]),
        ("match { $p: Named } return { $p.", ["name", "id", "@type"]),
        ("match { $p: Person $p kn", ["knows"]),
        ("match { $p: Person $p <", ["knows", "worksAt"]),
        ("match { $p: Person $p knows|w", ["worksAt"]),
        ("match { $p: Person $p $e:w", ["worksAt"]),
        ("match { $p: Person $p knows $f $f.b", ["born"]),
        ("match { $p: Person $p <knows>{1,3} $f } return { $f.b", ["born"]),
        ("match { $p worksAt $c } return { $c.c", ["city"]),
        ("match { $c: Company $c worksAt $p } return { $p.b", ["born"]),
        ("match { $c: Company $p worksAt $c $p knows $q } return { $q.b", ["born"]),
        ("match { $p $e:(knows|worksAt) $x } return { $e.", ["from", "to", "since", "role", "id", "@type"]),
        ("match { $person: Person $p", ["$person"]),
        ("match { $p: Person } ret", ["return", "returning"]),
        ("match { $p: Person } return { cou", ["count"]),
        ("match { $p: Person matches_", []),
        ("query q($s: Dat", ["Date", "DateTime"]),
        ("insert ", ["Person", "Company", "Knows", "WorksAt"]),
        ("update Knows set { si", ["since"]),
        ("query q() { update Person set { born: null } where sl", ["slug"]),
        ("delete Company where ci", ["city"]),
        ('match { $p: Person { name: "Per', []),
        ("match { // $p: Pe", []),
        ("$x.", []),
        (":sch", ["schema"]),
        (":", ["schema", "branch", "explain", "quit"]),
        (":schema P", ["Person"]),
        (":branch ", ["main", "trial/a"]),
        (":branch trial/", ["trial/a"]),
        (":explain match { $p: Pe", ["Person"]),
    ],
)
def test_completion_offers(text: str, expected: list[str]) -> None:
    assert offered(text) == expected


def test_an_offer_replaces_what_was_typed() -> None:
    assert complete("match { $p: pe", KNOWN).typed == "pe"
    assert complete(":branch trial/", KNOWN).typed == "trial/"
    assert complete("match { $p: Person $p.", KNOWN).typed == ""


def test_completion_never_fails_whatever_was_typed() -> None:
    text = 'query q($s: String) @description("x") { match { $a $e:(knows|worksAt){1,2} $b not { $b.x } } :explain "'
    for end in range(len(text) + 1):
        complete(text[:end], KNOWN)
        complete(text[end:], KNOWN)
        is_whole(text[:end])


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph of the fixture `graph`, for tests that do not change it."""
    path = tmp_path_factory.mktemp("shell") / "g"
    og.init(path, PEOPLE).insert({"Person": [{"name": "Ada", "age": 36}, {"name": "Bob"}]})
    return path


# ---- from stdin ------------------------------------------------------------------------------------------------------


def test_statements_from_stdin_read_and_write(graph: Path, done: Cli) -> None:
    given = f"""
{NAMES}
query older($by: I64) {{ update Person set {{ age: age + $by }} where name = "Ada" returning {{ age }} }}
match {{ $p: Person {{ name: $name }} }}
return {{ $p.age as years }}
"""
    run = done("shell", graph, "--params", '{"by": 5, "name": "Ada", "unused": 1}', stdin=given)
    assert run.out.startswith("p.name\nAda\nBob\n1 updated on main, commit ")
    assert run.out.endswith("\n\nage\n 41\nyears\n   41\n")
    assert [line.split(" in ")[0] for line in run.err.splitlines()] == ["2 rows", "done", "1 row"]
    assert all(line.endswith(" ms") for line in run.err.splitlines())


def test_the_shell_goes_on_after_a_failure_and_exits_as_the_first_one(people: Path, cli: Cli) -> None:
    wrong = f":nonsense\n\nmatch {{ $p: Person }}\nreturn {{ $p.nmae }}\n{NAMES}"
    run = cli("shell", people, "--quiet", stdin=wrong)
    assert run.code == 2
    assert run.out == "p.name\nAda\nBob\n"
    assert "error: there is no command :nonsense." in run.err
    assert "error: <stdin>:4:13: T6: Person has no property nmae. Did you mean name?\nreturn { $p.nmae }\n" in run.err
    assert cli("shell", people, stdin="query q() { match { $p: Person } return { $p.nmae } }\n:nonsense").code == 1
    assert cli("shell", people, stdin="match {").code == 1


def test_quit_leaves_at_once(people: Path, done: Cli) -> None:
    assert done("shell", people, "-q", stdin=f":quit\n{NAMES}").out == ""
    assert done("shell", people, "-q", stdin="").out == ""


def test_formats_are_those_of_query(people: Path, done: Cli, cli: Cli) -> None:
    for form in ("table", "json", "jsonl", "csv", "kv"):
        expected = done("query", people, "-e", f"query shell() {{ {NAMES} }}", "--format", form).out
        assert done("shell", people, "-q", "--format", form, stdin=NAMES).out == expected
        assert done("shell", people, "-q", stdin=f":format {form}\n{NAMES}").out == expected
    assert cli("shell", people, stdin=":format parquet").code == 2
    assert cli("shell", people, "--format", "yaml").code == 2
    assert done("shell", people, stdin=":format csv\n:format").out == "csv\n"


def test_writes_in_every_format(graph: Path, done: Cli) -> None:
    text = 'update Person set { age: 1 } where name = "Ada"'
    document = done("shell", graph, "--format", "json", "--as", "anna", stdin=text).json
    assert (document["affected"], document["commit"]["actor"]) == (1, "anna")
    run = done("shell", graph, "--format", "csv", stdin=text.replace("1", "2") + " returning { name, age }")
    assert run.out == "name,age\nAda,2\n"
    assert run.err.startswith("→ 1 updated on main, commit ")
    assert done("shell", graph, "--format", "csv", stdin=text).out == ""


def test_explain_shows_steps_instead_of_rows(people: Path, cli: Cli, done: Cli) -> None:
    once = done("shell", people, stdin=f":explain {NAMES}\n{NAMES}").out
    assert once.splitlines()[0].split() == ["step", "rows", "guessed", "ms", "about", "by"]
    assert once.endswith("\np.name\nAda\nBob\n")
    toggled = done("shell", people, "--format", "json", stdin=f":explain on\n{NAMES}\n:explain off").json
    assert toggled["steps"][0]["step"] == "scan"
    refused = cli("shell", people, stdin=":explain\ndelete Person where true")
    assert refused.code == 2
    assert "explain shows how a query reads" in refused.err
    assert done("shell", people, "-q", stdin=NAMES).out == "p.name\nAda\nBob\n"


def test_time_travel_and_branches(graph: Path, cli: Cli, done: Cli) -> None:
    first = og.open(graph).commits()[-1].id
    done("branch", "create", graph, "trial")
    text = f"""
:branch trial
insert Person {{ name: "Cy" }}
{NAMES}
:commit {first}
{NAMES}
:commit
{NAMES}
:branch main
:as-of 2999-01-01
{NAMES}
:branch
"""
    out = done("shell", graph, "-q", "--format", "csv", stdin=text).out
    assert out.startswith("p.name\nAda\nBob\nCy\np.name\np.name\nAda\nBob\nCy\np.name\nAda\nBob\n")
    assert out.splitlines()[-2].split()[:2] == ["*", "main"]
    past = cli("shell", graph, "--commit", first, stdin="delete Person where true")
    assert past.code == 2
    assert "an older state" in past.err
    lost = cli("shell", graph, "-q", stdin=f":branch nowhere\n:commit 01X\n:as-of never\n{NAMES}")
    assert lost.code == 1
    assert lost.out == "p.name\nAda\nBob\n"
    assert cli("shell", graph, "--branch", "nowhere").code == 1


def test_params_are_shown_set_and_refused(people: Path, cli: Cli, done: Cli) -> None:
    assert json.loads(done("shell", people, stdin=':params {"a":\n [1]}\n:params').out) == {"a": [1]}
    assert done("shell", people, "-q", stdin=':params{"a": 1}\n:params{}\n:params').out == "{}\n"
    assert cli("shell", people, stdin=":params {a}").code == 2
    assert cli("shell", people, "--params", "[1]").code == 2
    missing = cli(
        "shell", people, stdin="query q($name: String) { match { $p: Person { name: $name } } return { $p } }"
    )
    assert missing.code == 1
    assert "$name is String and has no value" in missing.err


@pytest.mark.parametrize(
    ("params", "condition"),
    [
        ('{"p": "x", "n": "Ada"}', "$p.name = $n"),
        ('{"n": ["Ada", "Cy"]}', "$p.name in $n"),
        ('{"n": 36}', "$p.age = $n"),
        ('{"n": 36.0}', "$p.age = $n"),
        ('{"n": [35.5, 36]}', "$p.age in $n"),
        ('{"p": 1, "w": 1, "e": 1, "n": "Ada"}', "$p.name = $n not { path $w = $p knows{1,2} $q $p $e:knows $q }"),
        ('{"n": null}', '$n is null and $p.name = "Ada"'),
        ('{"n": true}', '$n = true and $p.name = "Ada"'),
    ],
)
def test_a_body_alone_takes_parameters_of_the_session(people: Path, done: Cli, params: str, condition: str) -> None:
    text = f"match {{ $p: Person {condition} }} return {{ $p.name }}"
    assert done("shell", people, "-q", "--params", params, stdin=text).out == "p.name\nAda\n"


def test_the_schema_whole_or_of_one_type(people: Path, cli: Cli, done: Cli) -> None:
    assert done("shell", people, stdin=":schema").out == done("schema", "show", people).out
    shown = done("shell", people, stdin=":schema Person").out
    assert "node Person {" in shown
    assert "edge Knows: Person -> Person" in shown
    assert done("shell", people, stdin=":schema knows").out.startswith("edge Knows")
    wrong = cli("shell", people, stdin=":schema Persn")
    assert wrong.code == 2
    assert "Did you mean Person?" in wrong.err


def test_json_is_a_form_and_no_flag(people: Path, cli: Cli) -> None:
    refused = cli("shell", people, "--json")
    assert (refused.code, refused.error["remedy"]) == (2, "Use --format json.")


def test_help_names_every_command(people: Path, done: Cli) -> None:
    shown = done("shell", people, stdin=":help").out
    assert all(f"\n:{name}" in shown for name in COMMANDS)


def test_text_that_is_not_utf8_is_refused(people: Path, cli: Cli) -> None:
    run = cli("shell", people, stdin=b":help\n\xff\n")
    assert run.code == 1
    assert "line 2 is not UTF-8" in run.err


# ---- on a terminal ---------------------------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "omnigraph" / "history"


@pytest.fixture
def session(people: Path, state: Path) -> Session:
    return Session(og.open(people), Target(str(people), is_local=True), interactive=True, quiet=True)


@pytest.fixture
def keys(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[PipeInput]:
    """What is typed; the prompt itself is drawn nowhere, and answers go to a stdout that says it is a terminal."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        yield pipe


CTRL_C, CTRL_D, ESC = "\x03", "\x04", "\x1b"


def test_keys_run_queries_over_several_lines(session: Session, keys: PipeInput, capsys: Any) -> None:
    keys.send_text(f"match {{ $p: Person }}\rreturn {{ $p.name }}{ESC}\rlimit 1\r{CTRL_D}")
    interact(session)
    shown = capsys.readouterr().out
    assert "Ada" in shown
    assert "Bob" not in shown


def test_ctrl_c_drops_the_line_and_ctrl_d_leaves(session: Session, keys: PipeInput, capsys: Any) -> None:
    keys.send_text(f"match {{{CTRL_C}:branch\r:quit\r")
    interact(session)
    assert "main" in capsys.readouterr().out


def test_ctrl_c_stops_the_running_query_and_not_the_shell(
    session: Session, keys: PipeInput, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = og.PreparedQuery.run
    runs: list[int] = []

    def interrupted(*given: Any, **options: Any) -> Any:
        runs.append(1)
        if len(runs) == 1:
            signal.raise_signal(signal.SIGINT)
        return run(*given, **options)

    monkeypatch.setattr(og.PreparedQuery, "run", interrupted)
    keys.send_text(f"{NAMES}\r{NAMES}\r{CTRL_D}")
    interact(session)
    shown = capsys.readouterr()
    assert "error: stopped by Ctrl-C." in shown.err
    assert shown.out.count("Ada") == 1


def test_a_write_stopped_by_ctrl_c_happened_whole_or_not_at_all_and_the_next_one_works(graph: Path) -> None:
    phases: list[str] = []
    strike = 0

    def observe(phase: str) -> None:
        phases.append(phase)
        if len(phases) == strike:
            signal.raise_signal(signal.SIGINT)

    opened = og.open(graph, observer=observe)
    session = Session(opened, Target(str(graph), is_local=True), interactive=True, quiet=True)
    (more,) = split(['update Person set { age: age + 1 } where name = "Ada"'])
    assert session.run(more) == 0
    steps, age = len(phases), 37
    assert steps >= 8
    for strike in range(1, steps + 1):
        phases.clear()
        before = len(opened.commits())
        assert session.run(more) == 130
        phases.clear()
        strike = 0
        assert session.run(more) == 0
        written = sum(c.kind == "mutate" for c in opened.commits()[: len(opened.commits()) - before])
        assert written in (1, 2)
        age += written
        assert opened.nodes("Person", where={"name": "Ada"})["age"].to_pylist() == [age]


def test_the_history_is_kept_for_its_user_only(session: Session, keys: PipeInput, state: Path) -> None:
    keys.send_text(f"{NAMES}\r{CTRL_D}")
    interact(session)
    assert NAMES in state.read_text()
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert list(history_of(str(state)).load_history_strings()) == [NAMES]


def test_a_history_that_cannot_be_kept_is_no_failure(
    session: Session, keys: PipeInput, state: Path, capsys: Any
) -> None:
    state.parent.parent.write_text("a file where the folder should be")
    keys.send_text(f"{NAMES}\r{CTRL_D}")
    interact(session)
    shown = capsys.readouterr()
    assert "warning: the history is not kept in " in shown.err
    assert "Bob" in shown.out


def test_the_history_stands_in_the_state_folder_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert history_path() == "/home/ada/.local/state/omnigraph/history"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert history_path() == "/home/ada/.local/state/omnigraph/history"


def test_a_long_table_is_cut_on_a_terminal_only(session: Session, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr("omnigraph.cli.shell.session.SHOWN_ROWS", 1)
    (statement,) = split([NAMES])
    session.run(statement)
    assert capsys.readouterr().out.splitlines() == ["p.name", "Ada", "Bob"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    session.run(statement)
    shown = capsys.readouterr().out
    assert "Bob" not in shown
    assert shown.endswith("… 1 of 2 rows are shown\n")


def test_the_prompt_tells_graph_branch_and_older_state(session: Session) -> None:
    assert session.label == "g:main"
    session.as_of = "2999-01-01"
    assert session.label == "g:main@2999-01-01"


CHILD = """
import os, sys
terminal = os.open(sys.argv.pop(1), os.O_RDWR)  # the first terminal that a session leader opens becomes its own
for stream in (0, 1, 2):
    os.dup2(terminal, stream)
from omnigraph.cli.main import main
sys.exit(main())
"""


def test_a_real_terminal_with_completion_ctrl_c_and_ctrl_d(people: Path, state: Path) -> None:
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "OMNIGRAPH_FSYNC": "off"}
    command = [sys.executable, "-c", CHILD, os.ttyname(theirs), "shell", str(people)]
    child = subprocess.Popen(command, env=environment, start_new_session=True)
    seen = ""

    def wait_for(text: str) -> None:
        nonlocal seen
        deadline = time.monotonic() + 30
        while text not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([ours], [], [], 1)[0]:
                seen += os.read(ours, 65536).decode()
        seen = seen[seen.index(text) + len(text) :]

    try:
        wait_for(":help tells the commands.")
        wait_for("g:main>")
        os.write(ours, b"match { dropped")
        wait_for("dropped")
        os.write(ours, CTRL_C.encode())
        wait_for("g:main>")
        os.write(ours, b"match { $p: Per\t")
        wait_for("son")
        os.write(ours, b" } return { $p.na\t")
        wait_for("me")
        os.write(ours, b" }\r")
        wait_for("Bob")
        wait_for("2 rows in ")
        wait_for("g:main>")
        os.write(ours, CTRL_D.encode())
        assert child.wait(30) == 0
    finally:
        child.kill()
        child.wait()
        os.close(ours)
        os.close(theirs)
