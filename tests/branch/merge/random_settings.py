"""What a random history runs with: limits of the product set at random, and an empty place on a disk or on S3."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

LIMITS: dict[str, tuple[Any, ...]] = {
    "commit.operation.FOLD_AT": (2, 4, 32),
    "branch.merge.rows.table_edit.ADOPT_ROWS_MIN": (1, 3, 1_000),
    "branch.merge.rows.table_edit.COPY_ROWS_MAX": (2, 50_000),
    "branch.merge.rows.type_merge.READ_AT_ONCE_ROWS": (0, 10_000),
    "branch.merge.rows.type_merge.COMPARED_BYTES_MAX": (0, 256 << 20),
    "branch.merge.rows.type_merge.FRESH_ROWS_MAX": (0, 50_000),
    "storage.diff.table_version.FILTER_ADDRESSES_MAX": (2, 1_024),
    "branch.merge.operation.QUICK_ROWS_MAX": (0, 2_000),
    "pipeline.merge_tasks.TASKS_BYTES_MIN": (0, 4_000, 8 << 20),
    "branch.merge.rows.tasks.CHUNK_BYTES": (60_000, 200_000, 8 << 20),
    "branch.merge.rows.tasks.FRAGMENT_BYTES": (20_000, 800_000, 64 << 20),
    "storage.diff.table_version.BOUNDED_ADDRESSES_MAX": (32, 16_384),
}


@contextmanager
def random_limits(rng: random.Random) -> Iterator[dict[str, Any]]:
    chosen = {name: rng.choice(values) for name, values in LIMITS.items()}
    with patched(chosen):
        yield chosen


@contextmanager
def patched(limits: Mapping[str, Any]) -> Iterator[None]:
    before: list[tuple[Any, str, Any]] = []
    for name, value in limits.items():
        module_name, _, attribute = name.rpartition(".")
        module = import_module(f"omnigraph.{module_name}")
        before.append((module, attribute, getattr(module, attribute)))
        setattr(module, attribute, value)
    try:
        yield
    finally:
        for module, attribute, value in before:
            setattr(module, attribute, value)


@contextmanager
def stores(store: str) -> Iterator[Callable[[int, Path], str]]:
    """A function from a seed and a folder to the address of an empty place."""
    if store == "disk":
        yield lambda seed, folder: str(folder / "graph")
        return
    from tests.faults.s3server import REGION, S3Server, World

    before = dict(os.environ)
    with S3Server() as server:
        os.environ |= {"AWS_ENDPOINT_URL": server.endpoint, "AWS_SECRET_ACCESS_KEY": "secret"}
        os.environ |= {"AWS_REGION": REGION, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "histories.client.0"}
        world = server.add(World("histories"))

        def place(seed: int, folder: Path) -> str:
            server.call(world.store.objects.clear)
            return f"s3://graphs/g{seed}"

        try:
            yield place
        finally:
            os.environ.clear()
            os.environ.update(before)
