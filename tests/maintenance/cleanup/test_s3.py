"""The same on an object store: versions, forks whose data lies in the root, leases, plans, consent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import VersionReclaimed
from omnigraph.storage.layout import locate
from omnigraph.storage.objects import leases
from tests.cli.conftest import Cli, cli  # noqa: F401 - a fixture
from tests.maintenance.cleanup.conftest import SCHEMA, rows


def names(endpoint: str, below: str = "graph/") -> set[str]:
    import boto3

    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="cleanup", Prefix=below)
    return {o["Key"] for page in pages for o in page.get("Contents", [])}


def versions(endpoint: str, graph: og.Graph, branch: str = "main") -> list[str]:
    view = graph._committer.view(branch)
    path = view.pins[view.type("Person").id].path
    return sorted(n for n in names(endpoint, f"graph/{path}/_versions/") if n.endswith(".manifest"))


def test_versions_forks_leases_and_plans_on_an_object_store(
    bucket: str,
    s3_endpoint: str,
    tmp_path: Path,
    cli: Cli,  # noqa: F811
) -> None:
    graph = og.init(bucket, SCHEMA)
    for i in range(2):
        graph.upsert({"Person": [{"name": f"p{i}", "age": i}]})
    old = graph.snapshot().commit
    graph.create_branch("side")
    graph.upsert({"Person": [{"name": "s0"}, {"name": "s1"}]}, branch="side")
    graph.delete({"Person": ["s0"]}, branch="side")
    graph.create_branch("gone")
    graph.upsert({"Person": [{"name": "gone"}]}, branch="gone")
    graph.delete_branch("gone")
    for i in range(2):
        graph.upsert({"Person": [{"name": f"m{i}"}]})
    expected = {branch: rows(graph, branch) for branch in ("main", "side")}

    command = ("cleanup", bucket, "--keep", "1", "--json", "--quiet")
    plan = cli(*command, "--plan")
    assert plan.json["confirmed"] is False
    assert [f["reason"] for f in plan.json["reclaimed_forks"]] == ["branch_gone"]
    before = names(s3_endpoint)
    refused = cli(*command, "--confirm")
    assert (refused.code, refused.error["condition"]) == (2, "consent_required")
    assert names(s3_endpoint) == before
    (tmp_path / "plan.json").write_text(plan.out)

    mid = graph.commits()[1].id
    with graph.lease(commit=mid) as leased:
        apply = ("cleanup", bucket, "--apply", tmp_path / "plan.json", "--json", "--quiet")
        assert cli(*apply, "--confirm").error["condition"] == "consent_required"
        done = cli(*apply, "--confirm", "--yes")
        assert done.code == 0, done.out
        assert any(r["reason"].startswith("lease:") for r in done.json["refused"])
        assert leased.read("Person").num_rows == len(expected["main"]) - 1
    assert len(versions(s3_endpoint, graph)) == 3, "the newest, the leased one, and the one that side was made from"
    assert {branch: rows(graph, branch) for branch in expected} == expected

    graph.cleanup(keep=1, confirm=True)
    assert len(versions(s3_endpoint, graph)) == 2
    assert len(versions(s3_endpoint, graph, "side")) == 1
    with pytest.raises(VersionReclaimed):
        rows(graph, commit=mid)
    assert rows(graph, commit=old), "it is the base of a live branch"
    left = names(s3_endpoint)
    assert not [n for n in left if "__leases" in n or "__cleanup" in n]
    assert leases.leases(graph._location) == []
    gone = json.loads(plan.out)["reclaimed_forks"][0]["fork"]
    assert not [n for n in left if gone in n]
    graph.upsert({"Person": [{"name": "new"}]}, branch="side")
    assert set(rows(graph, "side")) == {*expected["side"], "new"}


def test_a_renewal_changes_the_mark_of_a_lease_within_one_tick_of_the_store(bucket: str) -> None:
    location = locate(f"{bucket}-leases")
    lease = leases.take(location, [], seconds=600)
    marks = set()
    for renew in (lambda: None, lease.renew, lambda: leases.renew(location, lease.id)):
        renew()
        marks.add(leases.leases(location)[0].mark)
    assert len(marks) == 3
