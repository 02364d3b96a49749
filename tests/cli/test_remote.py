"""A graph on S3: the same verbs, and nothing is destroyed without consent."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from tests.cli.conftest import BOB, SCHEMA, Cli


@pytest.fixture
def remote(bucket: str, folder: Path, done: Cli) -> str:
    uri = f"{bucket}/people"
    done("init", uri, "--schema", "people.pg")
    done("load", uri, "--data", "people.jsonl", "--mode", "append")
    return uri


def rows(done: Cli, uri: str) -> list[int]:
    return [t["rows"] for t in done("snapshot", uri, "--json").json["tables"]]


def test_init_load_snapshot_and_export_work_as_on_a_disk(done: Cli, graph: Path, remote: str) -> None:
    assert rows(done, remote) == [2, 1]
    assert done("export", remote).out == done("export", graph).out
    assert f"→ loading into {remote} (branch main)" in done("load", remote, "-d", "people.jsonl", "--mode", "merge").err


def test_overwriting_needs_yes_without_a_terminal(cli: Cli, done: Cli, remote: str) -> None:
    args = ("load", remote, "--data", "-", "--mode", "overwrite")
    refused = cli(*args, stdin=BOB)
    assert refused.code == 2
    assert "Add --yes" in refused.err
    as_json = cli(*args, "--json", stdin=BOB, tty=True)
    assert as_json.code == 2
    assert as_json.error["condition"] == "consent_required"
    assert as_json.error["target"] == remote
    assert rows(done, remote) == [2, 1]
    text = '{"type": "Person", "data": {"name": "Ada"}}\n' + BOB
    done(*args, "--yes", stdin=text)
    assert rows(done, remote) == [2, 1]


def test_deleting_a_branch_needs_yes_or_an_answer(cli: Cli, done: Cli, remote: str) -> None:
    def branches() -> list[str]:
        return [b["name"] for b in done("branch", "list", remote, "--json").json["branches"]]

    done("branch", "create", remote, "trial")
    args = ("branch", "delete", remote, "trial")
    assert cli(*args).code == 2
    for answer in ("n\n", "\n", ""):
        declined = cli(*args, stdin=answer, tty=True)
        assert declined.code == 1
        assert "Go on? [y/N]" in declined.err
        assert "Nothing was done" in declined.err
    assert branches() == ["main", "trial"]
    done(*args, stdin="y\n", tty=True)
    assert branches() == ["main"]


def test_hard_drops_need_yes_and_soft_ones_do_not(cli: Cli, done: Cli, remote: str) -> None:
    Path("less.pg").write_text(SCHEMA.replace("    since: I32?\n", ""))
    Path("least.pg").write_text(SCHEMA.replace("    since: I32?\n", "").replace("    age: I32?\n", ""))
    done("schema", "apply", remote, "--schema", "less.pg")
    args = ("schema", "apply", remote, "--schema", "least.pg", "--allow-data-loss")
    refused = cli(*args, "--json")
    assert refused.code == 2
    assert refused.error["condition"] == "consent_required"
    assert done(*args, "--yes", "--json").json["applied"] is True
    assert done(*args, "--json").json["applied"] is False


def test_local_targets_are_never_asked_about(done: Cli, graph: Path) -> None:
    done("load", graph, "--data", "people.jsonl", "--mode", "overwrite")
    done("load", f"file://{graph}", "--data", "people.jsonl", "--mode", "overwrite", "--json")
    done("branch", "create", graph, "trial")
    done("branch", "delete", graph, "trial", "--json")


def test_a_bucket_that_does_not_exist_is_told_in_a_sentence(cli: Cli, bucket: str) -> None:
    result = cli("snapshot", "s3://no-such-bucket/g", "--json")
    assert result.code == 1
    assert (result.error["condition"], result.error["reason"]) == ("storage_failed", "bucket_missing")
    assert result.error["remedy"]


def test_inputs_and_graph_on_s3_load_as_from_a_disk(done: Cli, graph: Path, bucket: str, folder: Path) -> None:
    """Records, a packed file and tables from a bucket; a graph in a bucket takes the same way."""
    import boto3

    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1")
    name = bucket.removeprefix("s3://")
    client.put_object(Bucket=name, Key="in/a.jsonl", Body=Path("people.jsonl").read_bytes())
    client.put_object(Bucket=name, Key="in/b.jsonl.gz", Body=gzip.compress(BOB.replace("Bob", "Carl").encode()))
    client.put_object(Bucket=name, Key="in/_ignored.jsonl", Body=b"no record")
    client.put_object(Bucket=name, Key="tables/more.csv", Body=b"name\nDora\nEve\n")
    client.put_object(Bucket=name, Key="tables/knows.csv", Body=b"from,to\nDora,Eve\n")
    tables = (
        *("--nodes", f"Person={bucket}/tables/more.csv"),
        *("--edges", f"Knows={bucket}/tables/knows.csv"),
    )
    uri = f"{bucket}/other"
    for target in (folder / "local", uri):
        done("init", target, "--schema", "people.pg")
        loaded = done("load", target, "--data", f"{bucket}/in/*", "--mode", "merge", *tables, "--json").json
        assert loaded["inserted"]["node:Person"] == 5
    shown = [done("export", target, "--type", "Person").out for target in (folder / "local", uri)]
    assert shown[0] == shown[1]
    left = client.list_objects_v2(Bucket=name, Prefix="other/__staging")
    assert left["KeyCount"] == 0


def test_a_large_packed_file_is_unpacked_into_the_store_of_the_graph(
    remote: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import omnigraph as og
    from omnigraph.pipeline.bulk.input import input_splits, unpack

    monkeypatch.setattr(input_splits, "PIECE_BYTES", (2000, 2000))
    staged: list[str] = []
    real = unpack.Staging.put_chunks
    monkeypatch.setattr(
        unpack.Staging, "put_chunks", lambda self, *a, **k: (staged.append(self.location.uri), real(self, *a, **k))[1]
    )
    (folder / "in.tsv.gz").write_bytes(
        gzip.compress(b"name\tage\n" + b"".join(b'"p\n%d"\t7\n' % i for i in range(900)))
    )
    graph = og.open(remote)
    done = graph.load(nodes={"Person": folder / "in.tsv.gz"}, mode="merge", engine="local")
    assert (staged, done.inserted, done.lines) == ([remote], {"node:Person": 900}, 1801)
