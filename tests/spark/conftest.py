"""One Spark session for all tests of this folder: starting one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from omnigraph.tasks.session import SparkSettings, spark_session

MASTER = "local[2,4]"
SECRET = ("spark.hadoop.omnigraph.test.secret.key", "not-for-everybody")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    # Flags that stop the JIT early: tests are short, and start a quarter faster.
    conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.sql.shuffle.partitions": "4"}
    conf |= dict([SECRET])
    session = spark_session(SparkSettings(master=MASTER, conf=conf))
    yield session
    session.stop()
