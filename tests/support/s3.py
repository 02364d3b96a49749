"""An S3 server on loopback (moto), and empty buckets in it. `tests/faults/s3server.py` injects faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def serving() -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


@contextmanager
def bucket_at(endpoint: str, name: str) -> Iterator[Any]:
    """A client of an empty bucket, which the environment leads to; afterwards the bucket is emptied."""
    import boto3

    variables = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in variables.items():
            patch.setenv(variable, value)
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        client.create_bucket(Bucket=name)
        yield client
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
            for entry in page.get("Contents", []):
                client.delete_object(Bucket=name, Key=entry["Key"])
