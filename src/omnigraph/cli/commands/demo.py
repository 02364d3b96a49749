"""The verb demo: the whole of omnigraph in a few minutes, on made-up data in a folder of its own."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack
from typing import Annotated

from typer import Option

from omnigraph.cli.options import Conf, Engine, Json, Master, Quiet
from omnigraph.cli.output import Answer, write_text
from omnigraph.cli.watch import watching
from omnigraph.errors import UsageError

Scale = Annotated[
    float, Option("--scale", metavar="X", help="How large: 1 is about a million edges, 0.01 ten thousand.")
]
Keep = Annotated[
    str | None,
    Option(
        "--keep",
        metavar="DIR",
        help="Work in this folder, and leave it: data, pipeline file, graph and rejects, to look around.",
        show_default=False,
    ),
]
Seed = Annotated[int, Option("--seed", metavar="N", help="The same seed and scale make the same data.")]
SCALE_MAX = 1000


def demo(
    scale: Scale = 1.0,
    keep: Keep = None,
    seed: Seed = 7,
    engine: Engine = None,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Make up a social graph, load it with all its dirt, embed its texts, crash a writer, heal, wear it out, mend it.

    Everything happens in a temporary folder that is removed afterwards, or in --keep DIR. The report of maintenance, an
    HTML page, stays.
    """
    if not 0 < scale <= SCALE_MAX:
        raise UsageError(detail=f"--scale is a number above 0 and up to {SCALE_MAX}, not {scale:g}.")
    if seed < 0:
        raise UsageError(detail=f"--seed is a number from 0 up, not {seed}.")
    from omnigraph.demo.narrator import Narrator
    from omnigraph.demo.story import prepare_folder, summary, tell
    from omnigraph.tasks.session import SparkSettings

    def say(text: str) -> None:
        if not json:
            write_text(sys.stdout, f"{text}\n")

    settings = SparkSettings.of(master=master, conf=conf)
    narrator = Narrator(say=say, watch=lambda: watching(quiet=quiet), engine=engine, settings=settings)
    with ExitStack() as rest:
        folder, page = _places(keep, rest)
        prepare_folder(folder)
        report = tell(folder, scale=scale, seed=seed, narrator=narrator, report=page)
    return Answer(report.to_json(), summary(report, kept=keep is not None), json)


def _places(keep: str | None, rest: ExitStack) -> tuple[str, str]:
    """The folder to work in, which goes with `rest` unless it is to be kept; and the report's file, which stays."""
    if keep is not None:
        folder = os.path.abspath(keep)
        return folder, os.path.join(folder, "report.html")
    handle, page = tempfile.mkstemp(prefix="omnigraph-demo-", suffix=".html")
    os.close(handle)
    return rest.enter_context(tempfile.TemporaryDirectory(prefix="omnigraph-demo-")), page
