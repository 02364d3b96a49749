"""Run every benchmark, or those named: `python -m benchmarks [NAME …]`. A missed bar is printed, not hidden."""

from __future__ import annotations

import sys
from importlib import import_module

ALL = (
    *("startup", "small_writes", "many_writers", "many_tables", "load_local", "embed", "query", "optimize", "segments"),
    *("load_spark", "load_memory", "optimize_spark", "cleanup", "branches", "merge", "merge_vectors", "diff", "feed"),
    "merge_requests",
)


def main(names: list[str]) -> None:
    results = []
    for name in names or ALL:
        for result in import_module(f"benchmarks.{name}").run():
            print(result, flush=True)
            results.append(result)
    missed = [r for r in results if not r.met]
    print(f"\n{len(results) - len(missed)} of {len(results)} bars met")


if __name__ == "__main__":
    main(sys.argv[1:])
