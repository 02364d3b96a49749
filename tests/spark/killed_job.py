"""The driver of `test_killed`: loads, two of them followed by an optimize, and a verify, on executors of their own.

It tells how far it is.
"""

from __future__ import annotations

import sys

import omnigraph as og
from omnigraph.pipeline.bulk.input import input_splits
from omnigraph.tasks.session import SparkSettings, spark_session


def main(uri: str, folder: str) -> None:
    conf = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.1",
        "spark.executor.memory": "512m",
    }
    spark = spark_session(SparkSettings(master="local-cluster[2,1,1024]", conf=conf))
    input_splits.PIECE_BYTES = (40_000, 40_000)
    graph = og.open(uri, spark=spark)
    for name in ("worker", "executor", "more", "driver"):
        print(f"loading {name}", flush=True)
        done = graph.load(f"{folder}/{name}.jsonl", mode="append", engine="spark")
        print(f"loaded {name} {sum(done.inserted.values())}", flush=True)
        if name in ("executor", "more"):
            print("optimizing", flush=True)
            result = graph.optimize(engine="spark", target_rows_per_fragment=2_000)
            print(f"optimized {result.ok}", flush=True)
        if name == "more":
            print("verifying", flush=True)
            print(f"verified {graph.verify(full=True, engine='spark').ok}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
