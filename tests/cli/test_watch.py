"""Progress: bars on a terminal and gone afterwards, one line per stage elsewhere, nothing with --quiet."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys

import pytest

from omnigraph.cli.watch import _times, watching
from omnigraph.tasks.runner import LocalRunner

JOB = """
import sys, time
from omnigraph.cli.watch import watching

with watching(quiet="--quiet" in sys.argv) as watcher:
    watcher.engine("spark", "work of 120 MiB")
    watcher.stage("reading", tasks=4)
    watcher.advance(tasks=2, rows=1000, size_bytes=3 << 20)
    time.sleep(0.5)
    watcher.advance(tasks=4, rows=2000000, size_bytes=180 << 20)
    watcher.stage("checking keys", tasks=0)
    watcher.stage("writing", tasks=1)
    if "--fail" in sys.argv:
        raise SystemExit("gone wrong")
    watcher.advance(tasks=1, rows=0, size_bytes=0)
    time.sleep(0.3)
print("rich" in sys.modules)
"""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_a_terminal(*args: str, term: str = "xterm", columns: str = "120") -> tuple[str, str]:
    """What the job writes to stdout, and what a real terminal behind stderr gets."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": term, "COLUMNS": columns, "LINES": "30"}
    job = subprocess.Popen([sys.executable, "-c", JOB, *args], stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # the terminal hung up: the job is over
            break
        if not more:
            break
        shown += more
    os.close(ours)
    assert job.stdout is not None
    out = job.stdout.read().decode()
    job.stdout.close()
    job.wait(30)
    return out, shown.decode()


def elsewhere(*args: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", JOB, *args], capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


def left_on_screen(shown: str) -> list[str]:
    """The lines that a terminal still shows in the end: a small one, which knows what rich sends."""
    lines, row, column = [""], 0, 0
    for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", shown):
        if piece == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif piece == "\r":
            column = 0
        elif piece.endswith("A") and piece.startswith("\x1b"):
            row -= int(piece[2:-1] or 1)
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif not piece.startswith("\x1b"):
            lines[row] = lines[row][:column].ljust(column) + piece + lines[row][column + len(piece) :]
            column += len(piece)
    return [line.rstrip() for line in lines if line.strip()]


def test_a_terminal_shows_a_bar_per_stage_with_tasks_rows_bytes_and_times() -> None:
    out, shown = on_a_terminal()
    plain = ESCAPES.sub("", shown)
    assert re.search(r"reading [━╺╸]+ 2/4 1,000 rows +3\.0 MiB 0 s", plain)
    assert re.search(r"reading ━+ 4/4 2,000,000 rows +180\.0 MiB 0 s", plain)
    assert re.search(r"writing ━+ 1/1 tasks", plain)
    assert "checking keys" not in plain
    assert out == "True\n"


@pytest.mark.parametrize("args", [(), ("--fail",)])
def test_the_bars_are_wiped_when_the_job_ends_however_it_ends(args: tuple[str, ...]) -> None:
    _, shown = on_a_terminal(*args)
    assert "reading" in shown
    kept = ["→ engine spark: work of 120 MiB", *(["gone wrong"] if args else [])]
    assert left_on_screen(shown) == kept
    assert shown.count("\x1b[?25h") >= 1, "the cursor is shown again"


def test_without_a_terminal_each_finished_stage_is_one_line() -> None:
    out, shown = elsewhere()
    engine, reading, writing = shown.splitlines()
    assert engine == "→ engine spark: work of 120 MiB"
    assert re.fullmatch(r"reading: 4 tasks, 2,000,000 rows, 180\.0 MiB, \d\.\d s", reading)
    assert re.fullmatch(r"writing: 1 task, \d\.\d s", writing)
    assert out == "False\n", "what draws bars is not even imported"


def test_the_time_that_is_left_is_told_beside_the_time_that_went_by() -> None:
    assert [_times(s, None) for s in (0, 59.9, 61, 3725)] == ["0 s", "59 s", "1:01", "1:02:05"]
    assert _times(12.3, 6.0) == "12 s, 6 s left"


def test_a_line_fits_a_terminal_of_80_columns() -> None:
    _, shown = on_a_terminal(columns="80")
    assert re.search(r"reading ━+ 4/4 2,000,000 rows +180\.0 MiB 0 s", ESCAPES.sub("", shown))


def test_a_stage_that_failed_is_not_told_as_finished() -> None:
    _, shown = elsewhere("--fail")
    assert "writing" not in shown
    assert "gone wrong" in shown


def test_a_terminal_that_can_not_move_its_cursor_gets_lines() -> None:
    _, shown = on_a_terminal(term="dumb")
    assert "\x1b" not in shown
    assert "reading: 4 tasks" in shown


def test_quiet_shows_nothing_on_a_terminal_or_elsewhere() -> None:
    assert elsewhere("--quiet") == ("False\n", "")
    assert on_a_terminal("--quiet") == ("False\n", "")


def test_an_engine_that_runs_several_jobs_is_named_once() -> None:
    stream = io.StringIO()
    with watching(quiet=False, stream=stream) as watcher:
        for _ in range(2):
            watcher.engine("local", "as asked for")
    assert stream.getvalue() == "→ engine local: as asked for\n"


def test_a_real_runner_tells_its_rows_and_bytes() -> None:
    stream = io.StringIO()
    with watching(quiet=False, stream=stream) as watcher:
        LocalRunner(parallelism=2, watcher=watcher).run(work, [{"n": 3}, {"n": 4}], stage="testing")
    assert re.fullmatch(r"testing: 2 tasks, 7 rows, 70 B, \d\.\d s\n", stream.getvalue())


def work(task: dict[str, int]) -> dict[str, int]:
    return {"rows_done": task["n"], "bytes_done": task["n"] * 10}
