"""A merge asks storage only about the types that changed, however many others there are."""

from __future__ import annotations

import pytest
from benchmarks.merge_requests import BAR, CHANGED, requests

from tests.faults.s3server import S3Server

FEW, MANY = 8, 50
REQUESTS_PER_TYPE_MAX = 45
"""86 requests for three types with a warm handle, 118 with a new one, when this was written."""


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "new"])
def test_the_requests_of_a_merge_do_not_grow_with_the_types_of_the_graph(warm: bool) -> None:
    with S3Server() as server:
        few, many = (requests(server, types, warm=warm, rounds=1)[0] for types in (FEW, MANY))
    assert many.total() <= BAR * few.total(), many - few
    assert few.total() <= REQUESTS_PER_TYPE_MAX * len(CHANGED), few
