"""Storage requests of a merge on S3, counted, by the number of types of the graph; three types are changed.

Half of the types are edge types. Two node types have an updated row each, one edge type has a new edge.

A warm handle has merged before; a new one is opened for the merge, which is counted with it. The target has moved in
the same three types, so that every merge is three-way. The S3 server of the fault tests counts the requests.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator

from tests.faults.s3server import REGION, S3Server, World

import omnigraph as og
from benchmarks.report import Result

TYPES = (8, 50, 112)
CHANGED = ("node:T0", "node:T1", "edge:E0")
ROWS = 20
ROUNDS = 3
BAR = 1.2


def run() -> Iterator[Result]:
    with S3Server() as server:
        for handle in ("warm", "new"):
            counted = {types: requests(server, types, warm=handle == "warm") for types in TYPES}
            totals = {types: statistics.median(c.total() for c in counted[types]) for types in TYPES}
            for types in TYPES[1:]:
                claim = f"storage requests of a merge of {len(CHANGED)} changed types on S3, {handle} handle"
                detail = f"{totals[types]:.0f} requests, {totals[TYPES[0]]:.0f} requests"
                ratio = totals[types] / totals[TYPES[0]]
                yield Result(f"{claim}: {types} types against {TYPES[0]}", ratio, BAR, True, detail)


def requests(server: S3Server, types: int, *, warm: bool = True, rounds: int = ROUNDS) -> list[Counter[str]]:
    """The requests of each merge, by operation."""
    name = f"types{types}"
    world = server.add(World(name))
    uri, options = f"s3://graphs/{name}", _options(server, name)
    graph = og.init(uri, _schema(types), storage_options=options)
    rows = [{"name": f"r{i}", "number": 0} for i in range(ROWS)]
    edges = [{"from": f"r{i}", "to": f"r{i}"} for i in range(ROWS)]
    graph.insert({f"{kind}{i}": rows if kind == "T" else edges for kind in "TE" for i in range(types // 2)})
    counted = []
    for turn in range(rounds + 1):
        branch = f"b{turn}"
        graph.create_branch(branch)
        _change(graph, row="r0", number=turn + 1, branch=branch)
        _change(graph, row="r1", number=turn + 1, branch="main")
        sent = server.call(lambda: len(world.log))
        merging = graph if warm else og.open(uri, storage_options=options)
        result = merging.merge(branch)
        assert result.outcome == "merged", result
        assert {table.table_key for table in result.tables} == set(CHANGED), result
        counted.append(server.call(lambda sent=sent: Counter(entry.operation for entry in world.log[sent:])))
    server.remove(world)
    return counted[1:]


def _schema(types: int) -> str:
    nodes = [f"node T{i} {{ name: String @key  number: I64? }}" for i in range(types // 2)]
    return "\n".join([*nodes, *(f"edge E{i}: T{i} -> T{i}" for i in range(types // 2))])


def _options(server: S3Server, world: str) -> dict[str, str]:
    return {
        "endpoint": server.endpoint,
        "aws_access_key_id": f"{world}.client.0",
        "aws_secret_access_key": "secret",
        "region": REGION,
        "allow_http": "true",
    }


def _change(graph: og.Graph, *, row: str, number: int, branch: str) -> None:
    changed = [{"name": row, "number": number}]
    graph.upsert({"T0": changed, "T1": changed, "E0": [{"from": row, "to": f"r{ROWS - 1}"}]}, branch=branch)
