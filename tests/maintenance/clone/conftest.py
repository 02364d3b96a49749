"""The original of the tests of relocate, which nothing may change, and an S3 server that holds what clones need."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.cli.conftest import cli
from tests.faults.s3server import S3Server, World
from tests.maintenance.relocate.conftest import _original, original

__all__ = ["_original", "cli", "original"]
_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


@pytest.fixture
def world(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """An empty store, which the environment names."""
    world = server.add(World(f"clone{next(_NUMBERS)}"))
    variables = {
        "AWS_ACCESS_KEY_ID": f"{world.name}.me.0",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": server.endpoint,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    yield world
    server.remove(world)
