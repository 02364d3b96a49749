"""Pages of docs/ whose examples are run: blocks of commands, each followed by what the command says.

    ```
    $ omnigraph stats ./people
    what it says
    ```

They are run in the order of the page, by the real command line. `<!-- first: NAME -->` right above a block names what
happens before it. With OMNIGRAPH_DOCS=write in the environment the outputs are written into the page instead of being
compared, for somebody to read before it is committed.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.cli.conftest import Cli

DOCS = Path(__file__).parents[1] / "docs"
WRITES = os.environ.get("OMNIGRAPH_DOCS") == "write"
_BLOCK = re.compile(r"(?:<!-- first: (?P<first>[a-z ]+) -->\n)?```\n(?P<text>\$ .*?)```", re.DOTALL)
_COMMAND = re.compile(r"^\$ omnigraph ([^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", re.MULTILINE)
_WITHOUT_PROGRESS = ("init", "query", "mutate", "lint", "snapshot", "commit", "diff", "tag")


def fenced(page: str, language: str) -> list[str]:
    """The blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def run_page(
    path: Path,
    folder: Path,
    cli: Cli,
    plain: Callable[[str], list[str]],
    *,
    first: Mapping[str, Callable[[], None]] | None = None,
) -> int:
    """Run every command of a page in `folder`, the current one, which the page calls /data. Returns how many.

    `plain` is an output without what differs from run to run.
    """
    page = path.read_text(encoding="utf-8")
    written, done = page, 0
    for block in _BLOCK.finditer(page):
        if block["first"] is not None:
            (first or {})[block["first"]]()
        text = ""
        for command, shown in _COMMAND.findall(block["text"]):
            words = shlex.split(command)
            told = cli(*words, *(() if words[0] in _WITHOUT_PROGRESS else ("--quiet",)))
            output = (told.out + told.err).replace(str(folder), "/data")
            text += f"$ omnigraph {command}\n{output}"
            done += 1
            if not WRITES:
                assert plain(output) == plain(shown), f"{path.name}: omnigraph {command}\n{output}"
        written = written.replace(block[0], block[0].replace(block["text"], text), 1)
    assert done == page.count("$ omnigraph "), "every command that the page shows is run"
    if WRITES:
        path.write_text(written, encoding="utf-8")
    return done
