"""Packed heads: what branches are does not depend on where their heads are stored, whoever packs at the same time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.branch.create import create_branch
from omnigraph.branch.delete import delete_branch
from omnigraph.maintenance.verify.scope import FrozenManifest
from omnigraph.storage.durability import NotDurable
from omnigraph.storage.lance import lance_api
from omnigraph.storage.manifest import head_packs, packed_heads
from omnigraph.storage.manifest.config import HEAD, PACKED
from omnigraph.storage.manifest.head_packs import Pack, dump_packs, load_packs, tombstone
from omnigraph.storage.manifest.rows import FORMAT_PACKED, manifest_rows
from omnigraph.storage.manifest.table import FORMAT, Manifest, SwapLost
from tests.branch.packing import SCHEMA, Model, before_swap, contents, loose, moved, pack, packing_at, write

Act = Callable[[og.Graph], object]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Two packs, of `packed` and `old`, and a branch that is loose."""
    graph = og.init(tmp_path / "graph", SCHEMA)
    write(graph, "main", "ada")
    for name in ("old", "older", "oldest"):
        graph.create_branch(name)
    assert pack(graph)
    for name in ("packed",):
        graph.create_branch(name)
        write(graph, name, f"on {name}")
    assert pack(graph)
    graph.create_branch("loose")
    write(graph, "loose", "on loose")
    return graph


@pytest.fixture
def unpacked(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "graph", SCHEMA)
    write(graph, "main", "ada")
    for name in ("old", "packed", "loose"):
        graph.create_branch(name)
        write(graph, name, f"on {name}")
    return graph


# ---- alone -----------------------------------------------------------------------------------------------------------


def test_a_packed_branch_is_read_written_and_deleted_like_any_other(graph: og.Graph) -> None:
    before = contents(graph)
    commits = {name: graph.commits(name) for name in before}
    assert pack(graph)
    assert loose(graph) == {"main"}
    assert contents(graph) == before
    assert {name: og.open(graph.uri).commits(name) for name in before} == commits
    write(graph, "packed", "more")
    assert loose(graph) == {"main", "packed"}
    graph.delete_branch("old")
    expected = {**before, "packed": ["ada", "more", "on packed"]}
    del expected["old"]
    assert contents(graph) == expected
    with pytest.raises(errors.BranchNotFound):
        graph.snapshot("old")
    with pytest.raises(errors.BranchExists):
        graph.create_branch("packed/below")
    assert pack(graph)
    assert contents(graph) == expected
    assert og.open(graph.uri).verify(full=True).ok


def test_a_name_of_a_deleted_branch_starts_anew_also_after_packing(graph: og.Graph) -> None:
    for i in range(3):
        graph.delete_branch("packed")
        assert pack(graph)
        assert "packed" not in contents(graph)
        graph.create_branch("packed")
        write(graph, "packed", f"again {i}")
        assert pack(graph)
        assert contents(graph)["packed"] == ["ada", f"again {i}"]


def test_creating_and_writing_pack_once_there_are_many_loose_heads(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph", SCHEMA)
    with packing_at(6, keep=2):
        for i in range(20):
            graph.create_branch(f"b{i}")
            assert len(loose(graph)) <= 7
        for i in range(20):
            write(graph, f"b{i}", f"on b{i}")
            assert len(loose(graph)) <= 8
        for i in range(0, 20, 2):
            graph.delete_branch(f"b{i}")
    assert contents(graph) == {"main": [], **{f"b{i}": [f"on b{i}"] for i in range(1, 20, 2)}}


def test_a_graph_keeps_its_format_until_the_first_packing(unpacked: og.Graph) -> None:
    unpacked.delete_branch("old")
    assert (unpacked._manifest.format(), "old" in loose(unpacked)) == (FORMAT, False)
    assert pack(unpacked)
    assert unpacked._manifest.format() == FORMAT_PACKED
    write(unpacked, "main", "later")
    unpacked._manifest.fold(more_than=1)
    assert og.open(unpacked.uri)._manifest.format() == FORMAT_PACKED


def test_who_reads_main_reads_no_pack(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pack(graph)

    def refuse(*_: object) -> None:
        pytest.fail("a pack is read")

    monkeypatch.setattr(head_packs, "bodies_of", refuse)
    fresh = og.open(graph.uri)
    write(fresh, "main", "new")
    assert fresh.snapshot().read("Person").num_rows == 2


def test_the_number_of_packs_is_logarithmic_and_so_is_how_often_a_head_is_written(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph", SCHEMA)
    manifest = graph._manifest
    for i in range(256):
        create_branch(manifest, f"b{i}", from_branch="main")
        if i % 4 == 3:
            assert pack(graph)
    assert len(load_packs(manifest.table().config()[PACKED])) <= 7
    rows = manifest.table().to_table(columns=["object_id"], filter="kind = 'heads'").num_rows
    entries = sum(len(body["heads"]) for body in manifest._rows("kind = 'heads'"))
    assert (rows, len(manifest.heads())) == (64, 257)
    assert entries <= 256 * 7


def test_what_is_deleted_leaves_the_packs(graph: og.Graph) -> None:
    for name in ("old", "older", "oldest", "packed", "loose"):
        graph.delete_branch(name)
    assert loose(graph) == {"main", "old", "older", "oldest", "packed", "loose"}
    assert pack(graph)
    assert loose(graph) == {"main"}
    assert load_packs(graph._manifest.table().config()[PACKED]) == ()
    assert not pack(graph)


def test_the_branches_that_were_written_last_stay_loose(graph: og.Graph) -> None:
    for name in ("old", "older", "loose"):
        write(graph, name, "again")
    assert pack(graph, keep=2)
    assert loose(graph) == {"main", "older", "loose"}


# ---- beside others ---------------------------------------------------------------------------------------------------

ACTS: dict[str, tuple[Act, Callable[[dict[str, list[str]]], None]]] = {
    "write_main": (lambda g: write(g, "main", "new"), lambda b: b.update(main=["ada", "new"])),
    "write_loose": (lambda g: write(g, "loose", "new"), lambda b: b.update(loose=["ada", "new", "on loose"])),
    "write_packed": (lambda g: write(g, "packed", "new"), lambda b: b.update(packed=["ada", "new", "on packed"])),
    "delete_loose": (lambda g: g.delete_branch("loose"), lambda b: b.pop("loose")),
    "delete_packed": (lambda g: g.delete_branch("packed"), lambda b: b.pop("packed")),
    "create": (lambda g: g.create_branch("fresh"), lambda b: b.update(fresh=["ada"])),
    "create_from_packed": (
        lambda g: g.create_branch("fresh", from_branch="packed"),
        lambda b: b.update(fresh=["ada", "on packed"]),
    ),
    "cleanup": (lambda g: g.cleanup(keep=1, confirm=True), lambda b: None),
}


@pytest.mark.parametrize("is_inside", [True, False], ids=["inside_packing", "around_packing"])
@pytest.mark.parametrize("start", ["graph", "unpacked"])
@pytest.mark.parametrize("name", ACTS)
def test_neither_a_packing_nor_an_operation_beside_it_is_lost(
    request: pytest.FixtureRequest, name: str, start: str, is_inside: bool
) -> None:
    """One of them has read the manifest and is about to swap when the other begins and ends."""
    graph: og.Graph = request.getfixturevalue(start)
    act, change = ACTS[name]
    expected = contents(graph)
    change(expected)
    packer = og.open(graph.uri)
    outer, inner = (
        (lambda: pack(packer), lambda: act(graph)) if is_inside else (lambda: act(graph), lambda: pack(packer))
    )
    with before_swap((packer if is_inside else graph)._manifest, inner):
        outer()
    assert contents(graph) == expected
    pack(packer)
    assert contents(graph) == expected
    assert loose(packer) == {"main"}


def test_a_commit_goes_on_by_itself_if_its_branch_was_packed_meanwhile(graph: og.Graph) -> None:
    """It need not be settled as one whose swap was lost: the branch is where it was."""
    with before_swap(graph._manifest, lambda: pack(og.open(graph.uri))):
        done = graph.insert({"Person": [{"name": "new"}]}, branch="loose")
    assert graph._manifest.head("loose").epoch == 2
    assert done.commit is not None


def test_of_two_packings_one_wins_and_both_are_right(graph: og.Graph) -> None:
    expected = contents(graph)
    one, other = og.open(graph.uri), og.open(graph.uri)
    with before_swap(one._manifest, lambda: pack(other)):
        assert not pack(one)
    assert contents(graph) == expected


def deleted_and_created(graph: og.Graph, name: str) -> None:
    graph.delete_branch(name)
    graph.create_branch(name)


def written_and_packed(graph: og.Graph, name: str) -> None:
    write(graph, name, "between")
    assert pack(graph)


@pytest.mark.parametrize("branch", ["packed", "loose"])
@pytest.mark.parametrize("between", [deleted_and_created, written_and_packed])
@pytest.mark.parametrize("packs", [True, False])
def test_a_stale_head_is_refused_however_its_branch_looks_by_now(
    graph: og.Graph, branch: str, between: Callable[[og.Graph, str], None], packs: bool
) -> None:
    """ABA: the key of the config may be there, or not, exactly as it was read."""
    stale = Manifest(graph._location)
    head = stale.head(branch)
    between(graph, branch)
    if packs:
        pack(graph)
    expected = contents(graph)
    with pytest.raises(SwapLost):
        stale.swap(head, moved(head))
    with pytest.raises(SwapLost):
        stale.swap(head, None)
    assert contents(graph) == expected


def test_a_packing_that_buried_newer_heads_puts_them_back(graph: og.Graph) -> None:
    """Stopped inside its swap until a cleanup has removed the versions that would have refused it."""
    manifest = graph._manifest
    plan = packed_heads._plan(manifest, 0)
    assert plan is not None
    manifest.append_rows(plan.rows)
    write(graph, "loose", "new")
    graph.delete_branch("packed")
    expected = contents(graph)
    op = lance_api.operations()
    bury = op.UpdateConfig(config_updates=op.UpdateMap(dict(plan.updates)))
    tx = lance_api.transaction(bury, read_version=manifest.table().version)
    buried = lance_api.commit(graph._location, graph._location.manifest_uri, tx)
    assert contents(graph) != expected
    assert not packed_heads._is_still_valid(manifest, plan, buried.version)
    assert contents(graph) == expected


def test_older_versions_of_the_manifest_have_the_heads_of_their_time(graph: og.Graph) -> None:
    manifest = graph._manifest
    before = {name: (manifest.head(name), manifest.table().version) for name in ("packed", "old", "loose")}
    write(graph, "packed", "new")
    graph.delete_branch("old")
    assert pack(graph)
    refs = manifest.known_refs()
    for name, (head, version) in before.items():
        assert manifest.head_at(name, version) == head
    assert manifest.head_at("old", manifest.table().version) is None
    assert manifest.known_refs() == refs


# ---- random ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_random_operations_by_stale_handles_do_what_a_dictionary_does(tmp_path: Path, seed: int) -> None:
    """Writers may hold heads that they read long ago: such a swap succeeds exactly if the branch is where it was."""
    rng = random.Random(seed)
    graph = og.init(tmp_path / "graph", SCHEMA)
    committers = [graph._committer, og.open(graph.uri)._committer]
    main = graph._manifest.head("main")
    model = Model({"main": (main.incarnation, main.epoch)})
    held = {}
    for step in range(120):
        committer = rng.choice(committers)
        manifest, name = committer.manifest, rng.choice([f"b{i}" for i in range(12)])
        match rng.choice(["create", "create", "write", "write", "hold", "stale", "stale", "delete", "pack"]):
            case "create" if name not in model.states:
                head = create_branch(manifest, name, from_branch=rng.choice(sorted(model.states)))
                model.states[name] = (head.incarnation, 0)
            case "write" | "hold" as act if name in model.states:
                held[name] = manifest.head(name)
                if act == "write":
                    _swap(model, manifest, held.pop(name))
            case "stale" if held:
                head = held.pop(rng.choice(sorted(held)))
                if model.states.get(head.branch) == (head.incarnation, head.epoch):
                    _swap(model, manifest, head)
                else:
                    with pytest.raises(SwapLost):
                        manifest.swap(head, moved(head))
            case "delete" if name in model.states:
                try:
                    delete_branch(committer, name)
                    del model.states[name]
                except errors.BranchInUse:
                    assert any(h.made_from and h.made_from[0] == name for h in manifest.heads().values())
            case "pack":
                assert packed_heads.pack_heads(manifest, keep=rng.randrange(4)) in (True, False)
        if step % 10 == 0:
            model.check(rng.choice(committers).manifest)
    model.check(Manifest(graph._location))


def _swap(model: Model, manifest: Manifest, head: object) -> None:
    new = moved(head)  # type: ignore[arg-type]
    if len(new.recent) > 5:
        manifest.append_records(new.recent[:-1])
        new = replace(new, recent=new.recent[-1:])
    assert manifest.swap(head, new) is not None  # type: ignore[arg-type]
    model.states[new.branch] = (new.incarnation, new.epoch)
    model.decided.add((new.incarnation, new.epoch))


# ---- failures --------------------------------------------------------------------------------------------------------


def failing(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_an_operation_does_not_fail_because_packing_does(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph._manifest, "append_rows", failing(errors.StorageError(doing="packing", detail="no")))
    with packing_at(0):
        graph.create_branch("fresh")
        write(graph, "loose", "new")
    assert "fresh" in contents(graph)


def test_a_disk_that_fails_to_sync_while_packing_is_not_kept_secret(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph._manifest, "append_rows", failing(NotDurable(doing="syncing", detail="no")))
    with packing_at(0), pytest.raises(NotDurable):
        graph.create_branch("fresh")
    assert "fresh" in contents(graph)


def set_config(graph: og.Graph, key: str, value: str) -> None:
    lance.dataset(graph._location.manifest_uri).update_config({key: value})


@pytest.mark.parametrize(
    "value",
    [
        "",
        "[]",
        '{"packs":[]}',
        '{"packs":[],"crc":1}',
        dump_packs([Pack("heads:0000000000000000", 1)]),
        dump_packs([Pack("'; DROP TABLE x", 1)]),
        dump_packs([Pack("heads:0", -1)]),
        "another number of entries",
    ],
)
def test_a_damaged_list_of_packs_is_told_and_main_can_be_read(graph: og.Graph, value: str) -> None:
    if value == "another number of entries":
        packs = load_packs(graph._manifest.table().config()[PACKED])
        value = dump_packs([Pack(pack.row_id, pack.entries + 1) for pack in packs])
    set_config(graph, PACKED, value)
    fresh = og.open(graph.uri)
    for act in (fresh.branches, lambda: fresh.snapshot("packed"), lambda: fresh.create_branch("x")):
        with pytest.raises(errors.HostileOrDamagedManifest):
            act()
    assert fresh.snapshot().read("Person").num_rows == 1
    write(fresh, "main", "new")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"heads": {"packed": None}, "crc": 1},
        {"heads": ["packed"], "crc": 0},
        {"heads": {"main": None}},
        {"heads": {"../x": None}},
        {"heads": {"packed": "text"}},
        {"heads": {"packed": {}}},
        {"heads": {"packed": {"commit": "../x"}}},
    ],
    ids=str,
)
def test_a_damaged_pack_is_told(graph: og.Graph, body: dict[str, object]) -> None:
    row = head_packs.pack_row(body.get("heads", {}))  # type: ignore[arg-type]
    if "crc" in body or "heads" not in body:
        row = (*row[:5], body)
    graph._manifest._append(manifest_rows([row]))
    set_config(graph, PACKED, dump_packs([Pack(str(row[0]), len(body.get("heads", ())))]))  # type: ignore[arg-type]
    with pytest.raises((errors.HostileOrDamagedManifest, errors.NotAGraph)):
        og.open(graph.uri).branches()


@pytest.mark.parametrize("value", ['{"deleted":"ab"}', '{"deleted":"ab","crc":1}', tombstone("../x")])
def test_a_damaged_tombstone_is_told(graph: og.Graph, value: str) -> None:
    set_config(graph, f"{HEAD}packed", value)
    for act in (lambda g: g.branches(), lambda g: g.snapshot("packed")):
        with pytest.raises(errors.HostileOrDamagedManifest):
            act(og.open(graph.uri))


def test_verify_tells_of_a_pack_that_is_not_referred_to_and_damaged(graph: og.Graph) -> None:
    row = head_packs.pack_row({})
    graph._manifest._append(manifest_rows([(*row[:5], {"heads": {}, "crc": 1})]))
    found = og.open(graph.uri).verify()
    assert [finding.code for finding in found.findings] == ["manifest_row_broken"]


# ---- the verbs that read all heads -----------------------------------------------------------------------------------


def test_a_clone_has_the_packed_branches(graph: og.Graph, tmp_path: Path) -> None:
    assert pack(graph)
    graph.delete_branch("old")
    og.clone(graph.uri, tmp_path / "copy")
    assert contents(og.open(tmp_path / "copy")) == contents(graph)


def test_cleanup_keeps_what_packed_branches_stand_on(graph: og.Graph) -> None:
    for i in range(3):
        write(graph, "main", f"later {i}")
    expected = contents(graph)
    assert pack(graph)
    og.open(graph.uri).cleanup(keep=1, confirm=True)
    assert contents(graph) == expected
    assert og.open(graph.uri).verify(full=True).ok


def test_a_version_that_is_looked_at_alone_reads_its_own_packs(graph: og.Graph) -> None:
    still = FrozenManifest(graph._location)
    before = still.heads()
    graph.delete_branch("packed")
    assert pack(graph)
    assert still.heads() == before
