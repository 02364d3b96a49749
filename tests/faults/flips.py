"""Byte flips in every kind of file of a graph, and every verb over them.

    python -m tests.faults.flips --seed 1 --flips 200

Each verb runs in a child process with a limit of time and of address space. It has to end by itself: with a result, or
with a typed error. A signal (Lance aborts where an allocation fails), a hang or an error of another class is a
violation; so is a wrong answer of `verify --full`, which has to name the damage.

The parent process imports everything and calls nothing of Lance, so that its children can be forked.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance  # noqa: F401 - imported before the fork
import pyarrow.compute  # noqa: F401 - the same

import omnigraph as og
from omnigraph.errors import OmnigraphError

TIMEOUT_S = 60
ADDRESS_SPACE_BYTES = 8 << 30
EDGE_BYTES = 64
SCHEMA = """
node P { name: String @key  age: I64? @index  bio: String? @index  v: Vector(4)? @index }
edge Knows: P -> P
"""
DONE, TYPED, UNTYPED, SILENT = 0, 10, 11, 12
NAMES = {DONE: "done", TYPED: "typed error", UNTYPED: "untyped error", SILENT: "not told"}


def build(path: str) -> None:
    """Every kind of file: several fragments, deletions, indices, rows of the manifest."""
    graph = og.init(path, SCHEMA)
    for i in range(3):
        rows = [{"name": f"p{i}-{j}", "age": j, "bio": f"word{j} text", "v": [j, i, 1, 0]} for j in range(30)]
        graph.insert({"P": rows})
    graph.insert({"Knows": [{"src": "p0-1", "dst": f"p1-{j}"} for j in range(20)]})
    graph.optimize()
    graph.delete({"P": ["p0-0", "p1-5"]})
    for i in range(26):
        graph.insert({"P": [{"name": f"late{i}"}]})


# ---- verbs -----------------------------------------------------------------------------------------------------------


def _require_told(result: Any) -> None:
    if result.ok:
        sys.stdout.flush()
        os._exit(SILENT)


def _quietly(graph: og.Graph) -> None:
    graph.nodes("P", where={"age": 3})
    graph.nodes("P", where={"name": "p1-1"})
    graph.query("query q() { match { $a: P $a knows $b } return { $b.name } }")


VERBS: dict[str, Callable[[og.Graph], Any]] = {
    "read": lambda g: (g.snapshot(), g.nodes("P"), g.edges("Knows")),
    "query": _quietly,
    "insert": lambda g: g.insert({"P": [{"name": "new"}], "Knows": [{"src": "new", "dst": "p0-1"}]}),
    "delete": lambda g: g.delete({"P": ["p0-2"]}),
    "verify_quick": lambda g: g.verify(quick=True),
    "verify": lambda g: g.verify(),
    "verify_full": lambda g: _require_told(g.verify(full=True)),
    "export": lambda g: g.export(lambda line: None),
    "stats": lambda g: g.stats(),
    "optimize": lambda g: g.optimize(),
    "cleanup_preview": lambda g: g.plan_cleanup(keep=1),
    "maintain": lambda g: g.maintain(keep=1, older_than="0s", confirm=False),
}
UNCHECKED = ("_transactions/", "__manifest/")
"""Files that no checksum is kept of, or not of all: `verify --full` need not tell of every bit in them."""


# ---- flips -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flip:
    path: str
    at: int
    mask: int

    def apply(self, root: str) -> None:
        with open(os.path.join(root, self.path), "r+b") as file:
            file.seek(self.at)
            byte = file.read(1)[0]
            file.seek(self.at)
            file.write(bytes([byte ^ self.mask]))


def kind_of(path: str) -> str:
    where = "manifest" if path.startswith("__manifest") else "table"
    folders = ("_versions", "_transactions", "_deletions", "_indices", "data")
    return f"{where} {next((f.strip('_') for f in folders if f'/{f}/' in path), 'other')}"


def targets(root: str) -> dict[str, list[str]]:
    """Files by kind; of versions only those that are read: the newest of each line."""
    kinds: dict[str, list[str]] = {}
    newest: dict[str, str] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), root)
            if name.endswith(".manifest"):
                newest[folder] = min(newest.get(folder, path), path)
            elif "hint" not in name:
                kinds.setdefault(kind_of(path), []).append(path)
    for path in newest.values():
        kinds.setdefault(kind_of(path), []).append(path)
    return {kind: sorted(paths) for kind, paths in sorted(kinds.items())}


def flips(root: str, rng: random.Random, number: int, *, only: str = "") -> Iterator[Flip]:
    """Kinds in turn; half of the flips in the first or last bytes, where offsets, lengths and marks are."""
    kinds = {kind: paths for kind, paths in targets(root).items() if only in kind}
    for n in range(number):
        path = rng.choice(kinds[list(kinds)[n % len(kinds)]])
        size = os.path.getsize(os.path.join(root, path))
        edge = min(EDGE_BYTES, size)
        at = rng.choice([rng.randrange(size), rng.randrange(size), rng.randrange(edge), size - 1 - rng.randrange(edge)])
        yield Flip(path, at, rng.choice([0xFF, 0x40, 0x80, 1 << rng.randrange(8)]))


# ---- children --------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], None], *, log: str) -> int:
    """Run in a forked child; its exit code, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        _child(work, log)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _child(work: Callable[[], None], log: str) -> None:
    code = UNTYPED
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(TIMEOUT_S)
        work()
        code = DONE
    except OmnigraphError as error:
        print("typed", error.condition, str(error)[:300], flush=True)
        code = TYPED
    except BaseException:  # noqa: BLE001 - whatever it is, it is a violation
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def run_verb(root: str, verb: str) -> None:
    VERBS[verb](og.open(root, engine="local"))


# ---- the campaign ----------------------------------------------------------------------------------------------------


def campaign(
    folder: Path, *, seed: int, number: int, verbs: list[str], only: str = ""
) -> tuple[collections.Counter[Any], list[str]]:
    """Counts of (kind of file, verb, outcome), and what is not as it must be."""
    os.environ.setdefault("OMNIGRAPH_FSYNC", "off")
    os.environ.setdefault("OMNIGRAPH_WRITE_TIMEOUT", "10")
    source, root, log = str(folder / "source"), str(folder / "graph"), str(folder / "log")
    assert in_child(lambda: build(source), log=log) == DONE, Path(log).read_text()
    counts: collections.Counter[Any] = collections.Counter()
    violations: list[str] = []
    for flip in flips(source, random.Random(seed), number, only=only):
        for verb in verbs:
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(source, root)
            flip.apply(root)
            code = in_child(lambda verb=verb: run_verb(root, verb), log=log)  # type: ignore[misc]
            outcome = NAMES.get(code, f"signal {-code}" if code < 0 else f"exit {code}")
            counts[(kind_of(flip.path), verb, outcome)] += 1
            is_silent = code == SILENT and not any(part in flip.path for part in UNCHECKED)
            if code not in (DONE, TYPED, SILENT) or is_silent:
                with suppress(OSError):
                    tail = Path(log).read_text(errors="replace").strip()[-300:].replace("\n", " | ")
                violations.append(f"{verb} over {flip}: {outcome}: {tail}")
                print(violations[-1], flush=True)
    return counts, violations


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--verbs", default=",".join(VERBS))
    parser.add_argument("--only", default="", help="only files whose kind has this in it, as 'table deletions'")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="omnigraph-flips-") as folder:
        counts, violations = campaign(
            Path(folder),
            seed=options.seed,
            number=options.flips,
            verbs=options.verbs.split(","),
            only=options.only,
        )
    for (kind, verb, outcome), number in sorted(counts.items()):
        print(f"{kind:22} {verb:16} {outcome:14} {number}")
    print(f"{sum(counts.values())} runs, {len(violations)} violations, seed {options.seed}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
