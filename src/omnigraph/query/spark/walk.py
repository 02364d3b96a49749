"""Traversals of several hops: from starts to (start, reached node, and optionally the path), round by round.

`edges` holds each pair of neighbours once, as NEAR and FAR, in the direction of the walk. A round is one join, computed
at once and stored by the executors: so the plan does not grow with the hops, and a search ends when a round reaches no
new node, with a maximum or without.

A node counts at its distance, where it is first reached. Over its loop a node is also reached one hop later; for a
shortest path only where the node itself is nearer than the minimum.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from omnigraph.query.spark.tables import FAR, NEAR

START, NODE, PATH, AWAY = "start", "node", "path", "away"


def materialized(rows: DataFrame) -> DataFrame:
    """Compute the rows now, once. If the session has a checkpoint folder, the rows survive the loss of an executor."""
    folder = rows.sparkSession.conf.get("spark.checkpoint.dir", None)
    return rows.checkpoint() if folder else rows.localCheckpoint()


def reach(edges: DataFrame, starts: DataFrame, low: int, high: int | None, *, backwards: bool) -> DataFrame:
    """START and NODE of every distinct pair."""
    seen = _searched(edges, starts, high, path=False, backwards=backwards)
    near = _at_loops(edges, seen, backwards=backwards).filter(_within(F.col(AWAY) + 1, low, high))
    pairs = seen.filter(_within(F.col(AWAY), low, high)).unionAll(near)
    return pairs.select(START, NODE).distinct()


def shortest(edges: DataFrame, starts: DataFrame, low: int, high: int | None, *, backwards: bool) -> DataFrame:
    """START, NODE and PATH of every pair: a path of the fewest edges, among several the first by the ids of its nodes.

    All paths of a round have the same length. So the first path to a node extends the first path to its predecessor.
    """
    seen = _searched(edges, starts, high, path=True, backwards=backwards)
    near = _at_loops(edges, seen.filter(F.col(AWAY) == F.lit(low - 1)), backwards=backwards)
    near = near.select(START, NODE, F.concat(PATH, F.array(_end(backwards=backwards))).alias(PATH))
    return seen.filter(_within(F.col(AWAY), low, high)).select(START, NODE, PATH).unionAll(near)


def paths(edges: DataFrame, starts: DataFrame, low: int, high: int, *, backwards: bool) -> DataFrame:
    """START, NODE and PATH of every path that visits no node twice, but may end where it starts."""
    walked = starts.select(F.col(START), F.col(START).alias(NODE), F.array(START).alias(PATH))
    finished: DataFrame | None = None
    for hop in range(1, high + 1):
        inner = F.array_remove(F.col(PATH), F.col(START))
        longer = walked.join(edges, F.col(NODE) == F.col(NEAR)).filter(~F.array_contains(inner, F.col(FAR)))
        longer = longer.select(START, F.col(FAR).alias(NODE), _longer(backwards=backwards).alias(PATH))
        longer = materialized(longer)
        if longer.isEmpty():
            break
        if hop >= low:
            finished = longer if finished is None else finished.unionAll(longer)
        walked = longer.filter(F.col(NODE) != F.col(START))
    return finished if finished is not None else walked.limit(0)


def _searched(edges: DataFrame, starts: DataFrame, high: int | None, *, path: bool, backwards: bool) -> DataFrame:
    """Breadth first from all starts at once: START, NODE, AWAY (the distance) and PATH; includes the starts."""
    more = [F.array(START).alias(PATH)] if path else []
    last = starts.select(F.col(START), F.col(START).alias(NODE), F.lit(0).alias(AWAY), *more)
    seen = last
    hop = 0
    while high is None or hop < high:
        hop += 1
        more = [_longer(backwards=backwards).alias(PATH)] if path else []
        next_ = last.join(edges, F.col(NODE) == F.col(NEAR)).select(START, F.col(FAR).alias(NODE), *more)
        next_ = next_.groupBy(START, NODE).agg(F.min(PATH).alias(PATH)) if path else next_.distinct()
        seen_pairs = seen.select(F.col(START).alias("s"), F.col(NODE).alias("n"))
        fresh = next_.join(seen_pairs, (F.col(START) == F.col("s")) & (F.col(NODE) == F.col("n")), "left_anti")
        last = fresh.select(START, NODE, F.lit(hop).alias(AWAY), *([PATH] if path else []))
        last = materialized(last)
        if last.isEmpty():
            break
        seen = seen.unionAll(last)
    return seen


def _end(*, backwards: bool) -> str:
    """The end of the path, where a loop counts; a backwards search begins there."""
    return START if backwards else NODE


def _at_loops(edges: DataFrame, pairs: DataFrame, *, backwards: bool) -> DataFrame:
    loops = edges.filter(F.col(NEAR) == F.col(FAR)).select(F.col(NEAR).alias("loop"))
    return pairs.join(loops, F.col(_end(backwards=backwards)) == F.col("loop"), "left_semi")


def _longer(*, backwards: bool) -> Column:
    return F.concat(F.array(FAR), PATH) if backwards else F.concat(PATH, F.array(FAR))


def _within(hops: Column, low: int, high: int | None) -> Column:
    condition = hops >= F.lit(low)
    return condition if high is None else condition & (hops <= F.lit(high))
