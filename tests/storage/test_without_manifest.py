"""An address without a manifest: nothing, what a dead `init` left, a lost graph, or a store that does not answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import GraphNotFound, ManifestMissing, NotAGraph, StorageError
from omnigraph.errors.reasons import reason_of
from omnigraph.storage.lance import lance_api
from omnigraph.storage.manifest import create
from tests.faults.s3server import S3Server, World
from tests.faults.s3store import Request, Response, error

SCHEMA = "node P { name: String @key }\nedge E: P -> P"
URI = "s3://graphs/g"
NOBODY = 65534


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


@pytest.fixture
def world(server: S3Server, request: pytest.FixtureRequest) -> World:
    return server.add(World(f"without{abs(hash(request.node.nodeid))}"))


@pytest.fixture
def s3(server: S3Server, world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The environment that finds the world."""
    variables = {
        "AWS_ACCESS_KEY_ID": f"{world.name}.a.0",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": server.endpoint,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return world


def written(uri: str) -> None:
    og.init(uri, SCHEMA).insert({"P": [{"name": "a"}], "E": []})


# ---- a graph that has lost its manifest ------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["__manifest", "__manifest/_versions"])
def test_a_graph_without_its_manifest_is_neither_opened_nor_built_over(uri: str, part: str) -> None:
    written(uri)
    shutil.rmtree(os.path.join(uri, part))
    before = sorted(str(p) for p in Path(uri).rglob("*"))
    for call in (lambda: og.open(uri), lambda: og.init(uri, SCHEMA)):
        with pytest.raises(ManifestMissing) as refusal:
            call()
        assert "1 node table and 1 edge table are there" in refusal.value.message
        assert len(refusal.value.fields["tables"]) == 2
        assert "__manifest" in refusal.value.remedy
    assert sorted(str(p) for p in Path(uri).rglob("*")) == before


def test_the_same_on_s3(s3: World) -> None:
    written(URI)
    for key in [key for key in s3.store.objects if "/__manifest/" in key]:
        del s3.store.objects[key]
    before = dict(s3.store.objects)
    for call in (lambda: og.open(URI), lambda: og.init(URI, SCHEMA)):
        with pytest.raises(ManifestMissing, match="1 node table and 1 edge table"):
            call()
    assert s3.store.objects == before


@pytest.mark.parametrize("path", ["__recovery/i/000000000001.0.json", "__staging/j/a", "__leases/a.json", "nodes/x/a"])
def test_whatever_else_has_our_layout_is_not_built_over(uri: str, path: str) -> None:
    Path(uri, path).parent.mkdir(parents=True)
    Path(uri, path).write_text("{}")
    with pytest.raises(ManifestMissing) as refusal:
        og.init(uri, SCHEMA)
    assert refusal.value.fields["example"] == path


def test_what_an_init_that_died_left_is_built_over(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(create, "_is_own", lambda *_: False)
        patch.setattr(create.durability, "sync_tree", _interrupt_at("__manifest"))
        og.init(uri, SCHEMA)
    assert os.path.isdir(os.path.join(uri, "__manifest"))
    with pytest.raises(GraphNotFound):
        og.open(uri)
    og.init(uri, SCHEMA).insert({"P": [{"name": "a"}]})


def _interrupt_at(part: str) -> Callable[..., None]:
    def sync_tree(path: str, **_: Any) -> None:
        if path.endswith(part):
            raise KeyboardInterrupt

    return sync_tree


def test_a_graph_that_was_created_while_it_was_looked_for_is_not_called_lost(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lance_api.open_newest

    def too_early(location: Any, address: str) -> Any:
        monkeypatch.setattr(lance_api, "open_newest", real)
        written(uri)
        raise lance_api.TableMissing(address)

    monkeypatch.setattr(lance_api, "open_newest", too_early)
    with pytest.raises(og.errors.GraphExists):
        og.init(uri, SCHEMA)


# ---- a store that does not answer ------------------------------------------------------------------------------------

ANSWERS = {
    "access_denied": error(403, "AccessDenied"),
    "bad_credentials": Response(
        403,
        {},
        b"<Error><Code>InvalidAccessKeyId</Code><Message>The AWS Access Key Id you provided does not exist in our "
        b"records.</Message></Error>",
    ),
    "bucket_missing": Response(
        404,
        {},
        b"<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>",
    ),
    "wrong_region": error(301, "PermanentRedirect"),
}


def refusing(world: World, answer: Response, operations: frozenset[str] | None = None) -> None:
    real = world.store.apply

    def apply(request: Request) -> Response:
        if operations is not None and request.operation not in operations:
            return real(request)
        return Response(answer.status) if request.method == "HEAD" else answer

    world.store.apply = apply  # type: ignore[method-assign]


def test_what_a_store_says_has_a_reason() -> None:
    texts = {name: answer.body.decode() for name, answer in ANSWERS.items()}
    texts["disk_full"] = "No space left on device (os error 28)"
    texts["unreachable"] = "HTTP error: error sending request"
    for name, text in texts.items():
        known = reason_of(text)
        assert known is not None, text
        assert known.name == name
    assert reason_of("Dataset at path g/__manifest was not found: Not found: g/__manifest/_versions") is None


@pytest.mark.parametrize("reason", ["bad_credentials", "bucket_missing"])
def test_a_store_that_refuses_is_not_an_address_without_a_graph(s3: World, reason: str) -> None:
    refusing(s3, ANSWERS[reason])
    with pytest.raises(StorageError) as refusal:
        og.open(URI)
    assert refusal.value.fields["reason"] == reason
    assert "init" not in refusal.value.remedy
    assert "Debug source" not in refusal.value.message


@pytest.mark.parametrize("reason", ["access_denied", "bucket_missing"])
def test_graph_not_found_is_said_only_after_a_listing_that_succeeded(s3: World, reason: str) -> None:
    written(URI)
    refusing(s3, ANSWERS[reason], frozenset({"GET", "HEAD"}))
    with pytest.raises(StorageError):
        og.open(URI)


def test_an_empty_prefix_has_no_graph(s3: World) -> None:
    with pytest.raises(GraphNotFound):
        og.open(URI)


@pytest.mark.long
def test_an_endpoint_that_nobody_listens_at_is_unreachable(s3: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StorageError) as refusal:
        og.open(URI)
    assert refusal.value.fields["reason"] == "unreachable"
    assert "AWS_ENDPOINT_URL" in refusal.value.remedy


VERBS = (
    ("snapshot", "URI"),
    ("export", "URI", "--out", "out"),
    ("verify", "URI"),
    ("cleanup", "URI", "--keep", "1"),
    ("branch", "list", "URI"),
    ("branch", "create", "URI", "b"),
    ("load", "URI", "--data", "people.jsonl", "--mode", "append"),
    ("query", "URI", "--query", "people.gq"),
    ("init", "URI", "--schema", "people.pg"),
    ("schema", "plan", "URI", "--schema", "people.pg"),
    ("pipeline", "plan", "pipe.yaml"),
    ("pipeline", "validate", "pipe.yaml"),
    ("pipeline", "run", "pipe.yaml"),
)


def run_verbs(
    uri: str, folder: Path, capsys: pytest.CaptureFixture[str], *, verbs: tuple[tuple[str, ...], ...] = VERBS
) -> dict[str, dict[str, Any]]:
    from omnigraph.cli.main import main

    (folder / "people.pg").write_text(SCHEMA)
    (folder / "people.jsonl").write_text('{"type": "P", "data": {"name": "b"}}\n')
    (folder / "people.gq").write_text("query q() { match { $p: P } return { $p.name } }")
    (folder / "pipe.yaml").write_text(f"graph: {uri}\nschema: people.pg\nmode: append\ndata: [people.jsonl]\n")
    errors = {}
    for verb in verbs:
        capsys.readouterr()
        words = [uri if word == "URI" else str(folder / word) if "." in word else word for word in verb]
        assert main([*words, "--json"]) == 1, verb
        errors[" ".join(verb)] = json.loads(capsys.readouterr().out)["error"]
    return errors


@pytest.mark.slow
def test_every_verb_says_that_access_is_denied(s3: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refusing(s3, ANSWERS["access_denied"])
    for verb, told in run_verbs(URI, tmp_path, capsys).items():
        assert (told["condition"], told["reason"]) == ("storage_failed", "access_denied"), verb


def test_a_pipeline_says_that_access_is_denied(s3: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refusing(s3, ANSWERS["access_denied"])
    (told,) = run_verbs(URI, tmp_path, capsys, verbs=(("pipeline", "plan", "pipe.yaml"),)).values()
    assert (told["condition"], told["reason"]) == ("storage_failed", "access_denied")


def test_every_verb_says_that_the_manifest_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "g")
    written(uri)
    shutil.rmtree(os.path.join(uri, "__manifest"))
    for verb, told in run_verbs(uri, tmp_path, capsys).items():
        assert told["condition"] == "manifest_missing", verb


# ---- a local disk ----------------------------------------------------------------------------------------------------


def test_a_file_above_the_graph_is_not_a_missing_graph(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotAGraph):
        og.open(tmp_path / "file")
    with pytest.raises(StorageError) as refusal:
        og.open(tmp_path / "file" / "g")
    assert refusal.value.fields["reason"] == "not_a_folder"


def test_a_mount_that_does_not_answer_is_not_a_missing_graph(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def scandir(path: Any = ".") -> Any:
        if str(path) == uri:
            raise OSError(107, "Transport endpoint is not connected")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for call in (lambda: og.open(uri), lambda: og.init(uri, SCHEMA)):
        with pytest.raises(StorageError) as refusal:
            call()
        assert refusal.value.fields["reason"] == "unreachable"


AS_NOBODY = """
import json, os, sys
import omnigraph as og
root, schema, user = sys.argv[1:]
og.init(f"{root}/other", schema).nodes("P")  # imports all modules: the other user may not see them
os.setuid(int(user))
for number in range(3):
    for call in (og.open, lambda uri: og.init(uri, schema)):
        try:
            call(f"{root}/g{number}")
            print(json.dumps({"condition": "none"}))
        except og.errors.OmnigraphError as error:
            print(json.dumps(error.to_json()))
"""


def test_a_folder_that_may_not_be_read_is_not_a_missing_graph(tmp_path: Path) -> None:
    """The tests may run as root, whom nothing is denied: a process of another user asks."""
    written(str(tmp_path / "g0"))
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    for number in (1, 2):
        shutil.copytree(tmp_path / "g0", tmp_path / f"g{number}")
    closed = [tmp_path / "g0", tmp_path / "g1" / "__manifest", tmp_path / "g2" / "__manifest" / "_versions"]
    for folder in closed:
        folder.chmod(0)
    try:
        user = NOBODY if os.getuid() == 0 else os.getuid()
        words = [sys.executable, "-c", AS_NOBODY, str(tmp_path), SCHEMA, str(user)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    finally:
        for folder in closed:
            folder.chmod(0o755)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 6, done.stderr
    for told in answers:
        assert (told["condition"], told.get("reason")) == ("storage_failed", "access_denied"), told
