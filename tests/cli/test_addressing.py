"""Which graph a maintenance command works on: storage by its address, or a graph of a cluster; never a server."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.app import VERBS
from omnigraph.cli.planes import MAINTENANCE, foreign_flag, plane_of
from omnigraph.cli.target import Target, resolve_direct
from omnigraph.errors import (
    ClusterEmpty,
    ClusterStateInvalid,
    ClusterStateMissing,
    DirectOnly,
    GraphNotChosen,
    GraphNotFound,
    GraphNotInCluster,
    OmnigraphError,
    UsageError,
)
from tests.cli.conftest import Cli

READY = sorted(v.words for v in VERBS if v.words in MAINTENANCE)
"""The maintenance commands that can be run without any option."""


def state(*graphs: str) -> dict[str, Any]:
    resources = {f"graph.{g}": {"digest": "sha256:0"} for g in graphs}
    others = {"query.a.find": {"digest": "sha256:1"}, "policy.p": {"digest": "sha256:2"}}
    return {
        "version": 1,
        "state_revision": 3,
        "applied_revision": {"config_digest": "c", "resources": {**others, **resources}},
    }


def cluster(root: Path, *graphs: str, body: Any = None) -> Path:
    """A cluster that says so of these graphs, and has the storage of each."""
    (root / "__cluster").mkdir(parents=True)
    (root / "__cluster" / "state.json").write_text(json.dumps(state(*graphs) if body is None else body))
    for graph in graphs:
        (root / "graphs" / f"{graph}.omni" / "__manifest").mkdir(parents=True)
    return root


def direct(uri: str | None = None, **rest: str | None) -> Target:
    options = {"store": None, "cluster": None, "graph": None, **rest}
    return resolve_direct(uri, options["store"], options["cluster"], options["graph"], verb="repair")


# ---- storage ---------------------------------------------------------------------------------------------------------


def test_a_path_a_file_uri_and_store_name_the_same_graph(tmp_path: Path) -> None:
    expected = Target(uri=str(tmp_path.resolve() / "g"), is_local=True)
    assert direct(str(tmp_path / "g")) == expected
    assert direct(f"file://{tmp_path}/g") == expected
    assert direct(store=str(tmp_path / "g")) == expected


def test_an_s3_uri_is_taken_as_it_is() -> None:
    assert direct("s3://bucket/people/") == Target(uri="s3://bucket/people", is_local=False)


# ---- clusters --------------------------------------------------------------------------------------------------------


def test_the_graph_of_a_cluster_lies_below_its_root(tmp_path: Path) -> None:
    root = cluster(tmp_path / "c", "people", "places")
    expected = Target(uri=f"{root.resolve()}/graphs/places.omni", is_local=True)
    assert direct(cluster=str(root), graph="places") == expected
    assert direct(cluster=f"file://{root}", graph="places") == expected


def test_the_only_graph_of_a_cluster_is_chosen_by_itself(tmp_path: Path) -> None:
    root = cluster(tmp_path / "c", "people")
    assert direct(cluster=str(root)).uri == f"{root.resolve()}/graphs/people.omni"


def test_several_graphs_and_none_named_lists_the_candidates(tmp_path: Path) -> None:
    root = cluster(tmp_path / "c", "places", "people")
    with pytest.raises(GraphNotChosen, match="people, places") as refusal:
        direct(cluster=str(root))
    assert refusal.value.fields["graphs"] == ["people", "places"]
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize("name", ["peple", "../people", ""])
def test_a_graph_that_the_cluster_has_not_is_refused_with_those_that_it_has(tmp_path: Path, name: str) -> None:
    root = cluster(tmp_path / "c", "people")
    with pytest.raises(GraphNotInCluster, match="people"):
        direct(cluster=str(root), graph=name)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ([], "it is no mapping."),
        ({"version": 1}, "it does not say which resources are applied."),
        ({"applied_revision": [1]}, "applied_revision is no mapping."),
        ({"applied_revision": {"resources": 3}}, "its applied resources are no mapping."),
        ({"version": 1, "applied_revision": {"resources": ["graph.people"]}}, "its applied resources are no mapping."),
    ],
)
def test_a_state_that_is_none_is_told(tmp_path: Path, body: Any, told: str) -> None:
    with pytest.raises(ClusterStateInvalid, match=re.escape(told)):
        direct(cluster=str(cluster(tmp_path / "c", body=body)))


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_a_state_of_another_version_is_refused(tmp_path: Path, version: Any) -> None:
    root = cluster(tmp_path / "c", "people", body={**state("people"), "version": version})
    with pytest.raises(ClusterStateInvalid, match=rf"of version {version}, and this omnigraph knows version 1") as no:
        direct(cluster=str(root), graph="people")
    assert no.value.condition == "invalid_state_json"
    assert "Upgrade omnigraph" in no.value.remedy
    assert "the graph's own storage" in no.value.remedy


def test_a_state_of_another_version_may_have_another_shape(tmp_path: Path) -> None:
    with pytest.raises(ClusterStateInvalid, match="version 2"):
        direct(cluster=str(cluster(tmp_path / "c", body={"version": 2, "graphs": ["people"]})))


def test_a_state_that_does_not_say_its_version_is_read(tmp_path: Path) -> None:
    body = {k: v for k, v in state("people").items() if k != "version"}
    root = cluster(tmp_path / "c", "people", body=body)
    assert direct(cluster=str(root)).uri.endswith("/graphs/people.omni")


def test_a_graph_that_the_store_has_lost_is_not_offered_to_be_created_behind_the_clusters_back(tmp_path: Path) -> None:
    root = cluster(tmp_path / "c", "people", "places")
    shutil.rmtree(root / "graphs" / "people.omni")
    with pytest.raises(
        GraphNotFound, match=r"no graph at .*people\.omni, although the state of the cluster"
    ) as refusal:
        direct(cluster=str(root), graph="people")
    assert refusal.value.condition == "graph_not_found"
    assert "init" not in refusal.value.remedy
    assert str(root.resolve()) in refusal.value.remedy
    assert not (root / "graphs" / "people.omni").exists()
    assert direct(cluster=str(root), graph="places").uri.endswith("places.omni")


def test_a_state_that_was_cut_short_is_told(tmp_path: Path) -> None:
    root = cluster(tmp_path / "c", "people")
    text = (root / "__cluster" / "state.json").read_text()
    (root / "__cluster" / "state.json").write_text(text[:20])
    with pytest.raises(ClusterStateInvalid, match="no JSON"):
        direct(cluster=str(root))


def test_a_cluster_that_has_applied_nothing_has_no_graph(tmp_path: Path) -> None:
    for number, body in enumerate((state(), {"applied_revision": None})):
        with pytest.raises(ClusterEmpty):
            direct(cluster=str(cluster(tmp_path / str(number), body=body)), graph="people")


def test_a_folder_without_a_state_is_no_cluster_and_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path, tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(ClusterStateMissing, match=r"__cluster/state\.json"):
            direct(cluster=str(root))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_cluster_in_a_bucket_is_read_there(bucket: str) -> None:
    import boto3

    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1")
    with pytest.raises(ClusterStateMissing):
        direct(cluster=f"{bucket}/root")
    body = json.dumps(state("people")).encode()
    own = bucket.removeprefix("s3://")
    client.put_object(Bucket=own, Key="root/__cluster/state.json", Body=body)
    with pytest.raises(GraphNotFound, match="although the state"):
        direct(cluster=f"{bucket}/root/")
    client.put_object(Bucket=own, Key="root/graphs/people.omni/__manifest/_versions/1.manifest", Body=b"")
    assert direct(cluster=f"{bucket}/root/") == Target(uri=f"{bucket}/root/graphs/people.omni", is_local=False)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{"uri": "http://host/g"}, {"store": "HTTPS://host/g"}, {"cluster": "https://host"}])
def test_an_address_of_a_server_is_refused_with_the_command_and_the_right_way(given: dict[str, str]) -> None:
    with pytest.raises(DirectOnly, match="repair works on storage directly") as refusal:
        direct(**given)
    assert "--cluster ROOT --graph ID" in refusal.value.remedy


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "--cluster and --graph"),
        ({"uri": "g", "store": "g"}, "twice"),
        ({"uri": "g", "cluster": "c"}, "twice"),
        ({"store": "g", "cluster": "c"}, "twice"),
        ({"uri": "g", "graph": "people"}, "--cluster"),
        ({"graph": "people"}, "--cluster"),
    ],
)
def test_a_graph_is_named_in_exactly_one_way(given: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        direct(**given)


@pytest.mark.parametrize("verb", sorted(MAINTENANCE))
def test_maintenance_is_direct_and_its_refusals_name_the_command(verb: str) -> None:
    assert plane_of(verb) == "direct"
    for flag in ("--server", "--target", "--profile"):
        refusal = foreign_flag(verb, flag)
        assert refusal is not None
        assert (refusal.condition, verb in refusal.message) == ("direct_only", True)
        assert "--cluster" in refusal.remedy


# ---- through the command line ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", READY)
def test_every_command_finds_its_graph_by_storage_and_by_cluster_and_says_so(
    cli: Cli, graph: Path, tmp_path: Path, verb: str
) -> None:
    root = cluster(tmp_path / "c", "people")
    shutil.rmtree(root / "graphs" / "people.omni")
    os.rename(graph, root / "graphs" / "people.omni")
    shown = str((root / "graphs" / "people.omni").resolve())
    policy = ("--keep", "5") if verb == "cleanup" else ()
    for address in ((shown,), ("--store", shown), ("--cluster", root), ("--cluster", root, "--graph", "people")):
        result = cli(verb, *address, *policy)
        assert result.code == 0, result.err
        assert result.err.splitlines()[0].startswith("→ "), result.err
        assert shown in result.err.splitlines()[0]
    assert "→" not in cli(verb, "--cluster", root, *policy, "--quiet").err


@pytest.mark.parametrize("verb", READY)
def test_every_command_refuses_servers(cli: Cli, graph: Path, verb: str) -> None:
    for words in (("http://host/g",), (graph, "--server", "x"), (graph, "--target", "x")):
        result = cli(verb, *words, "--json")
        assert result.code == 2
        assert result.error["condition"] == "direct_only"
        assert verb in result.error["message"]
        assert "--cluster" in result.error["remedy"]
    assert issubclass(DirectOnly, OmnigraphError)
