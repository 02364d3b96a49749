"""Arguments of another shape are refused by name, over the whole public API, and leave the graph as it was."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import arguments
from omnigraph.errors import OmnigraphError, UsageError
from omnigraph.graph.prepared_query import PreparedQuery

SCHEMA = "node P { name: String @key  age: I32? }\nedge K: P -> P"
QUERY = "query q($n: String) { match { $p: P { name: $n } } return { $p.name } }"


def generator() -> Iterator[str]:
    yield "1"


class Stranger:
    """Nothing that any argument could be."""


WRONG: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "true": lambda: True,
    "one": lambda: 1,
    "half": lambda: 0.5,
    "nan": lambda: float("nan"),
    "text": lambda: "12",
    "surrogate": lambda: "\ud800",
    "bytes": lambda: b"12",
    "list": lambda: ["12"],
    "numbers": lambda: [1],
    "mapping": lambda: {"P": 1},
    "numbered": lambda: {1: ["1"]},
    "generator": generator,
    "stranger": Stranger,
}
RIGHT: dict[str, set[str]] = {
    "str": {"text"},
    "bool": {"true"},
    "int": {"one"},
    "float": {"one", "half"},
    "str | float": {"one", "half", "text"},
    "Address": {"text"},
    "str | os.PathLike[str]": {"text"},
    "AsOf": {"text"},
    "Sequence[str]": {"list"},
    "Mapping[str, Any]": {"mapping"},
    "Mapping[str, object]": {"mapping"},
    "Mapping[str, str]": set(),
    "Mapping[str, Rows]": set(),
    "Mapping[str, Sequence[str]]": set(),
    "Mapping[str, Table]": set(),
    "Where": {"text", "mapping"},
    "Source | Sequence[Source]": {"text", "list", "generator"},
    "Callable[[bytes], Any] | Address": {"text"},
    "Observer": set(),
    "Session": set(),
    "Watcher": set(),
    "Event": set(),
    "Format": {"text"},
    "CleanupResult | Mapping[str, Any] | str | os.PathLike[str]": {"text", "mapping"},
    "OptimizePlan | Mapping[str, Any]": {"mapping"},
    "Policy | Mapping[str, Any] | str | os.PathLike[str]": {"text", "mapping"},
    "MaintainPolicy | Mapping[str, Any] | str | os.PathLike[str]": {"text", "mapping"},
}
"""Which of these have the right shape, by annotation: written down here a second time, on purpose."""
UNCHECKED = {"Any", "Iterable[EntityType]"}
REQUIRED: dict[str, dict[str, Any]] = {
    "Graph.nodes": {"type_name": "P"},
    "Graph.edges": {"type_name": "K"},
    "Graph.scan": {"type_name": "P"},
    "Graph.commit": {"commit_id": "x"},
    "Graph.insert": {"rows": {"P": [{"name": "9"}]}},
    "Graph.upsert": {"rows": {"P": [{"name": "9"}]}},
    "Graph.update": {"type_name": "P", "values": {"age": 3}},
    "Graph.delete": {"ids": {"P": ["1"]}},
    "Graph.load": {"source": [b'{"type":"P","data":{"name":"9"}}\n'], "mode": "append"},
    "Graph.export": {"to": bytearray().extend},
    "Graph.plan_schema": {"text": SCHEMA},
    "Graph.apply_schema": {"text": SCHEMA},
    "Graph.create_branch": {"name": "b"},
    "Graph.delete_branch": {"name": "b"},
    "Graph.query": {"source": QUERY},
    "Graph.mutate": {"source": "query m() { delete P }"},
    "Graph.prepare": {"source": QUERY},
    "Snapshot.count": {"type_name": "P"},
    "Snapshot.read": {"type_name": "P"},
    "Transaction.get": {"type_name": "P", "entity_id": "1"},
    "Transaction.read": {"type_name": "P"},
    "Transaction.insert": {"rows": {"P": [{"name": "9"}]}},
    "Transaction.upsert": {"rows": {"P": [{"name": "9"}]}},
    "Transaction.update": {"type_name": "P", "values": {"age": 3}},
    "Transaction.delete": {"ids": {"P": ["1"]}},
}
LATER = {"Graph.lease", "Graph.transaction"}
"""Their calls give a block, which is not entered here."""


def parameters(function: Any) -> Iterator[tuple[str, str]]:
    """Every argument with its annotation, those that come as options too."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "values") and parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            is_read = "ReadOptions" in str(parameter.annotation)
            yield from (arguments.READ_OPTIONS if is_read else arguments.WRITE_OPTIONS).items()
        elif parameter.name != "self":
            yield parameter.name, str(parameter.annotation)


def methods(owner: type) -> list[str]:
    own = [name for name, member in inspect.getmembers(owner) if callable(member) and not name.startswith("_")]
    return [name for name in own if not isinstance(inspect.getattr_static(owner, name), staticmethod)]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arguments") / "g"
    og.init(path, SCHEMA).insert({"P": [{"name": n} for n in ("1", "2", "12")]})
    return path


@pytest.fixture
def graph(template: Path, tmp_path: Path) -> og.Graph:
    shutil.copytree(template, tmp_path / "g")
    return og.open(tmp_path / "g")


def is_right(annotation: str, wrong: str) -> bool:
    stem = annotation.removesuffix(" | None")
    if wrong == "none":
        return stem != annotation
    return wrong in ({"text"} if stem.startswith("Literal[") else RIGHT[stem])


def state(graph: og.Graph) -> object:
    return [(b.name, b.commit) for b in graph.branches()], graph.snapshot().count("P")


def refuses(call: Callable[..., Any], where: str, required: Mapping[str, Any]) -> int:
    """Every argument of a call with every wrong shape; how many there were."""
    tried = 0
    for name, annotation in parameters(call):
        if annotation.removesuffix(" | None") in UNCHECKED:
            continue
        for wrong, value in WRONG.items():
            if is_right(annotation, wrong):
                continue
            tried += 1
            given = {**required, name: value()}
            positional = [given.pop("params")] if where == "PreparedQuery.run" and "params" in given else []
            with pytest.raises(UsageError) as refused:
                call(*positional, **given)
            assert name in refused.value.message, f"{where}, {name} as {wrong}: {refused.value.message}"
    return tried


@pytest.mark.parametrize(
    "owner", [og.Graph, og.Snapshot, og.Transaction, PreparedQuery], ids=lambda owner: owner.__name__
)
def test_every_method_refuses_every_wrong_shape_by_name(owner: type, graph: og.Graph) -> None:
    before = state(graph)
    with graph.transaction() as transaction:
        target = {
            og.Graph: graph,
            og.Snapshot: graph.snapshot(),
            og.Transaction: transaction,
            PreparedQuery: graph.prepare(QUERY),
        }[owner]
        tried = 0
        for name in methods(owner):
            where = f"{owner.__name__}.{name}"
            tried += refuses(getattr(target, name), where, REQUIRED.get(where, {}))
        assert transaction.statements == []
    assert tried >= {"Graph": 1500, "Snapshot": 30, "Transaction": 100, "PreparedQuery": 25}[owner.__name__]
    assert state(graph) == before


def test_functions_of_the_package_refuse_every_wrong_shape_by_name(tmp_path: Path) -> None:
    refuses(og.init, "init", {"address": str(tmp_path / "new"), "schema_text": SCHEMA})
    refuses(og.open, "open", {"address": str(tmp_path / "new")})
    assert not (tmp_path / "new").exists()
    refuses(og.register, "register", {})


WRITES: list[tuple[str, dict[str, Any], str]] = [
    ("delete", {"ids": {"P": "12"}}, r"ids\['P'\] is a list of texts, not the text '12'"),
    ("delete", {"ids": {"P": [1]}}, r"ids\['P'\]\[0\] is a text, not 1"),
    ("delete", {"ids": {"P": {"1": "2"}}}, r"ids\['P'\] is a list of texts, not a dict"),
    ("delete", {"ids": {"P": generator()}}, r"ids\['P'\] is a list of texts, not a generator"),
    ("delete", {"ids": {"P": None}}, r"ids\['P'\] is a list of texts, not None"),
    ("delete", {"ids": {"P": ["1"]}, "brnach": "main"}, "delete has no option 'brnach'"),
    ("update", {"type_name": "P", "values": {"age": 3}, "ids": "12"}, "ids is a list of texts"),
    ("update", {"type_name": "P", "values": {"age": 3}, "where": ["name"]}, "where is a mapping"),
    ("insert", {"rows": {"P": "12"}}, r"rows\['P'\] is a list of rows or an Arrow table"),
    ("insert", {"rows": {"P": {"name": "12"}}}, r"rows\['P'\] is a list of rows"),
    ("insert", {"rows": {"P": ["12"]}}, r"rows\['P'\]\[0\] is a mapping"),
    ("insert", {"rows": {"P": (row for row in [{"name": "9"}])}}, r"rows\['P'\] is a list of rows"),
    ("upsert", {"rows": {"P": [None]}}, r"rows\['P'\]\[0\] is a mapping"),
    ("load", {"nodes": {"P": 5}, "mode": "append"}, r"nodes\['P'\]"),
    ("load", {"nodes": {"P": [{"name": "9"}]}, "mode": "append"}, r"nodes\['P'\]"),
    ("load", {"source": {"P": 1}, "mode": "append"}, "source is a path"),
    ("load", {"source": [5], "mode": "append"}, r"source\[0\]"),
]


@pytest.mark.parametrize(("method", "given", "told"), WRITES)
def test_wrong_contents_are_refused_by_their_place(
    graph: og.Graph, method: str, given: dict[str, Any], told: str
) -> None:
    before = state(graph)
    with pytest.raises(UsageError, match=told):
        getattr(graph, method)(**given)
    assert state(graph) == before


MEANINGLESS: list[tuple[str, dict[str, Any]]] = [
    ("insert", {"rows": {"P": [{1: "x"}]}}),
    ("insert", {"rows": {"P": [{"name": Stranger()}]}}),
    ("insert", {"rows": {"P": [{"name": "9", "age": True}]}}),
    ("insert", {"rows": {"P": [{"name": "\ud800"}]}}),
    ("insert", {"rows": {"P": Stranger}}),
    ("update", {"type_name": "P", "values": {"age": Stranger()}, "ids": ["1"]}),
    ("update", {"type_name": "P", "values": {"age": 3}, "where": {"age": Stranger()}}),
    ("update", {"type_name": "P", "values": {"age": 3}, "ids": ["1"], "where": {"age": 3}}),
    ("nodes", {"type_name": "P", "where": {"age": Stranger()}}),
    ("nodes", {"type_name": "P", "where": {"age": [1]}}),
    ("nodes", {"type_name": "P", "columns": []}),
    ("nodes", {"type_name": "P", "limit": -1}),
    ("commits", {"limit": -1}),
    ("query", {"source": QUERY, "params": {"n": Stranger()}}),
    ("query", {"source": QUERY, "n": b"x"}),
    ("query", {"source": QUERY, "n": "1", "timeout_s": -1}),
    ("query", {"source": QUERY, "n": "1", "max_rows": 0}),
    ("query", {"source": QUERY, "n": "1", "engine": "local"}),
    ("cleanup", {"plan": {}}),
    ("cleanup", {"policy": {"x": 1}}),
    ("cleanup", {"keep": -1, "confirm": True}),
    ("cleanup", {"keep": 1, "older_than": float("inf"), "confirm": True}),
    ("cleanup", {"keep": 1, "older_than": -1.0, "confirm": True}),
    ("optimize", {"plan": {}}),
    ("optimize", {"plan": {"tables": 5}}),
    ("optimize", {"max_rows": -1}),
    ("optimize", {"max_time_s": -1.0}),
    ("optimize", {"concurrency": 0}),
    ("optimize", {"target_rows_per_fragment": 0}),
    ("optimize", {"tables": ["nope"]}),
    ("optimize", {"engine": "nope"}),
    ("repair", {"tables": ["nope"]}),
    ("maintain", {"policy": {"x": 1}}),
    ("maintain", {"keep": -1}),
    ("maintain", {"policy": {"optimize": Stranger()}}),
    ("maintain", {"policy": {"cleanup": {"kep": 1}}}),
    ("cleanup", {"policy": {"keep": 1, "branches": {"x": 5}}}),
    ("cleanup", {"policy": {"keep": 1, "branches": ["x"]}}),
    ("verify", {"branch": "nope"}),
    ("verify", {"quick": True, "full": True}),
    ("verify", {"orphans_older_than_s": -1.0}),
    ("embed", {"batch": 0}),
    ("embed", {"commit_every": -1}),
    ("embed", {"rate_per_minute": 0.0}),
    ("embed", {"provider": "nope"}),
    ("embed", {"type_name": "nope"}),
    ("export", {"to": "", "file_format": "jsonl"}),
    ("export", {"to": bytearray().extend, "types": ["nope"]}),
    ("snapshot", {"as_of": "yesterday"}),
    ("create_branch", {"name": ""}),
    ("create_branch", {"name": "b", "from_branch": "nope"}),
    ("relocate", {"from_address": "nope://x"}),
    ("load", {"source": "", "mode": "append"}),
    ("load", {"source": [b"{}\n", 5], "mode": "append"}),
    ("load", {"source": iter([5]), "mode": "append"}),
    ("load", {"nodes": {"P": og.TableSource("x.csv", options={"header": "maybe"})}, "mode": "append"}),
]


@pytest.mark.parametrize(("method", "given"), MEANINGLESS)
def test_what_has_the_right_shape_and_no_meaning_is_a_typed_error(
    graph: og.Graph, method: str, given: dict[str, Any]
) -> None:
    before = state(graph)
    with pytest.raises(OmnigraphError):
        getattr(graph, method)(**given)
    assert state(graph) == before


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"path": 5}, "path"),
        ({"skip": "note"}, "skip"),
        ({"columns": ["a"]}, "columns"),
        ({"options": {"header": True}}, r"options of a TableSource\['header'\]"),
        ({"format": b"csv"}, "format"),
        ({"from_column": 1}, "from_column"),
    ],
)
def test_a_table_source_refuses_wrong_shapes_by_name(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        og.TableSource(**{"path": "x.csv", **given})


def test_collections_of_ids_and_numbers_of_numpy_are_taken(graph: og.Graph) -> None:
    for ids in (("1",), pa.array(["2"]), np.array(["12"]), frozenset({"none"}), {"none": 1}.keys()):
        graph.delete({"P": ids})
    assert graph.snapshot().count("P") == 0
    graph.insert({"P": ({"name": "a"}, {"name": "b"})})
    assert graph.nodes("P", limit=np.int64(1)).num_rows == 1
    assert graph.commits(limit=np.int32(2))[0].kind == "write"


def test_every_annotation_of_the_api_has_a_shape() -> None:
    with pytest.raises(AssertionError, match="has no shape"):
        arguments.shape_of("Frobnicator | None")
