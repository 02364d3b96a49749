"""A job for `test_cluster`, run as a program: tasks on the executors of a session, then the data source.

It is given where the graph is; the session comes from the environment and from SETTINGS, a JSON object.
"""

from __future__ import annotations

import json
import os
import sys

import omnigraph as og
from omnigraph.tasks.runner import SparkRunner
from omnigraph.tasks.session import SparkSettings, spark_session


def main(graph: str) -> None:
    sys.path.append("driver")  # of this process only: executors get the module as they get the package
    from shipped import whereabouts

    settings = json.loads(os.environ["SETTINGS"])
    spark = spark_session(SparkSettings(master=settings.get("master"), conf=settings.get("conf", {})))
    found = SparkRunner(spark).run(whereabouts, [{"value": n} for n in range(3)], stage="looking")
    shown = {"tasks": found, "session": type(spark).__module__}
    if settings.get("source"):
        og.register(spark)
        people = spark.read.format("omnigraph").options(graph=graph, type="Person", where="age > 30").load()
        shown["names"] = [row["name"] for row in people.collect()]
        if settings["source"] == "write":
            more = people.selectExpr("concat(name, '!') AS name", "age")
            more.write.format("omnigraph").options(graph=graph, type="Person").mode("append").save()
    if settings.get("load"):
        more = spark.sql("select concat('p', id) as name, cast(id as int) as age from range(20)")
        loaded = og.open(graph, spark=spark).load(nodes={"Person": more}, mode="merge")
        shown["loaded"] = [loaded.engine, loaded.inserted]
    print(json.dumps(shown))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
