"""What a graph does, in a minute: create, load, write, branch, change the schema, and survive a crash.

Everything happens in a temporary folder that is removed afterwards.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import omnigraph as og

HERE = Path(__file__).parent

CRASH = """
import os, signal, sys
import omnigraph as og

def kill_before_publishing(phase):
    if phase == "publish":
        os.kill(os.getpid(), signal.SIGKILL)

graph = og.open(sys.argv[1], observer=kill_before_publishing)
graph.insert({"Person": [{"name": "Alan"}], "Knows": [{"from": "Alan", "to": "Ada"}]}, actor="unlucky")
"""


def say(text: str) -> None:
    print(f"\n\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else f"\n{text}")


def show(graph: og.Graph, branch: str = "main") -> None:
    for table in graph.snapshot(branch).tables():
        print(f"  {table.table_key:<16} {table.rows:>3} rows   version {table.version}")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="omnigraph-demo-") as folder:
        uri = os.path.join(folder, "people")
        say("1. A graph from a schema, and a file of records into it: one commit.")
        graph = og.init(uri, (HERE / "people.pg").read_text(), actor="demo")
        graph.load(HERE / "people.jsonl", mode="append")
        show(graph)

        say("2. What breaks a rule of the schema is refused as a whole, with a reason.")
        try:
            graph.insert({"Person": [{"name": "Nobody", "age": 200}], "Knows": [{"from": "Nobody", "to": "Who?"}]})
        except og.errors.ConstraintViolation as refused:
            print("  " + refused.message.replace("\n", "\n  "))

        say("3. A branch costs one small change; tables are forked when it first writes them.")
        graph.create_branch("review")
        graph.upsert({"Person": [{"name": "Barbara", "age": 50}]}, branch="review")
        counts = {name: graph.snapshot(name).count("Person") for name in ("main", "review")}
        print(f"  people on main: {counts['main']}, on review: {counts['review']}")

        say("4. The schema moves, with its rows, in one commit; other branches keep theirs.")
        text = (HERE / "people.pg").read_text()
        changed = text.replace("age: I32?", 'years: I32? @rename_from("age")\n  active: Bool @default(true)')
        plan = graph.apply_schema(changed.replace("@range(age", "@range(years"), allow_data_loss=False).plan
        for step in plan.steps:
            print(f"  {step}")
        print(f"  {graph.snapshot().read('Person').to_pylist()[0]}")

        say("5. A writer is killed between its effects and their publication.")
        died = subprocess.run([sys.executable, "-c", CRASH, uri], check=False)
        assert died.returncode == -signal.SIGKILL, died
        print("  killed; a reader still sees the old state:")
        show(graph)
        started = time.perf_counter()
        graph.upsert({"Person": [{"name": "Ada", "years": 37, "city": "London"}]})
        print(f"  the next writer settled it on its way, in {(time.perf_counter() - started) * 1000:.0f} ms:")
        show(graph)
        for commit in graph.commits(limit=3):
            note = f" ({commit.recovery['outcome'].replace('_', ' ')} after a crash)" if commit.recovery else ""
            print(f"  {commit.id}  {commit.kind:<12} by {commit.actor}{note}")
        assert {"Alan", "Ada"} <= set(graph.snapshot().read("Person")["name"].to_pylist())
        say("Done.")


if __name__ == "__main__":
    main()
