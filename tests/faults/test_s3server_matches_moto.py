"""The S3 server of the fault harness answers like moto: one list of operations, sent to both, compared one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import botocore.config
import botocore.exceptions
import lance
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

from tests.faults.s3server import REGION, S3Server, World

BUCKET = "graphs"
Answer = dict[str, Any]


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def ours() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def client(endpoint: str, access_key: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=access_key,
        aws_secret_access_key="secret",
        region_name=REGION,
        config=botocore.config.Config(
            s3={"addressing_style": "path"},
            retries={"max_attempts": 0},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


def answer(call: Callable[[], dict[str, Any]]) -> Answer:
    """What of an answer clients act on: status, error code, tags, bytes, names. Times and ids differ by nature."""
    try:
        found = call()
    except botocore.exceptions.ClientError as problem:
        response = problem.response
        return {"status": response["ResponseMetadata"]["HTTPStatusCode"], "code": response["Error"]["Code"]}
    kept = {
        name: found[name]
        for name in ("ETag", "ContentLength", "ContentRange", "KeyCount", "IsTruncated")
        if name in found
    }
    if "Body" in found:
        kept["Body"] = found["Body"].read()
    kept["Contents"] = [(item["Key"], item["Size"], item["ETag"]) for item in found.get("Contents", [])]
    kept["Prefixes"] = [item["Prefix"] for item in found.get("CommonPrefixes", [])]
    kept["Deleted"] = sorted(item["Key"] for item in found.get("Deleted", []))
    return {"status": found["ResponseMetadata"]["HTTPStatusCode"], **kept}


def conversation(s3: Any) -> Iterator[tuple[str, Answer]]:
    """Every operation that Lance and obstore use, in its ordinary and its refused form."""

    def say(name: str, call: Callable[[], dict[str, Any]]) -> tuple[str, Answer]:
        return name, answer(call)

    at = {"Bucket": BUCKET}
    yield say("get nothing", lambda: s3.get_object(**at, Key="a"))
    yield say("head nothing", lambda: s3.head_object(**at, Key="a"))
    yield say("put", lambda: s3.put_object(**at, Key="a", Body=b"0123456789"))
    yield say("get", lambda: s3.get_object(**at, Key="a"))
    yield say("head", lambda: s3.head_object(**at, Key="a"))
    for span in ("bytes=2-4", "bytes=7-", "bytes=-3", "bytes=8-99", "bytes=99-100"):
        yield say(f"range {span}", lambda span=span: s3.get_object(**at, Key="a", Range=span))
    yield say("create, exists", lambda: s3.put_object(**at, Key="a", Body=b"x", IfNoneMatch="*"))
    yield say("create, new", lambda: s3.put_object(**at, Key="dir/b c&d", Body=b"bc", IfNoneMatch="*"))
    tag = s3.head_object(**at, Key="a")["ETag"]
    yield say("swap, stale", lambda: s3.put_object(**at, Key="a", Body=b"y", IfMatch='"0000"'))
    yield say("swap", lambda: s3.put_object(**at, Key="a", Body=b"swapped", IfMatch=tag))
    yield say("swap, again", lambda: s3.put_object(**at, Key="a", Body=b"z", IfMatch=tag))
    yield say("get swapped", lambda: s3.get_object(**at, Key="a"))
    yield say("copy", lambda: s3.copy_object(**at, Key="copied", CopySource={"Bucket": BUCKET, "Key": "dir/b c&d"}))
    yield say("copy nothing", lambda: s3.copy_object(**at, Key="copied", CopySource={"Bucket": BUCKET, "Key": "none"}))
    for n in range(5):
        yield say(f"fill {n}", lambda n=n: s3.put_object(**at, Key=f"dir/sub{n % 2}/{n}", Body=b"n" * n))
    yield say("list all", lambda: s3.list_objects_v2(**at))
    yield say("list below", lambda: s3.list_objects_v2(**at, Prefix="dir/"))
    yield say("list folder", lambda: s3.list_objects_v2(**at, Prefix="dir/", Delimiter="/"))
    yield say("list top", lambda: s3.list_objects_v2(**at, Delimiter="/"))
    yield say("list nothing", lambda: s3.list_objects_v2(**at, Prefix="none/"))
    yield say("list after", lambda: s3.list_objects_v2(**at, StartAfter="dir/sub0/2"))
    yield say("list pages", lambda: paged(s3, MaxKeys=2, Prefix="dir/"))
    yield say("list pages of folders", lambda: paged(s3, MaxKeys=1, Prefix="dir/", Delimiter="/"))
    yield from multipart(s3, say)
    yield say("delete", lambda: s3.delete_object(**at, Key="copied"))
    yield say("delete nothing", lambda: s3.delete_object(**at, Key="copied"))
    gone = {"Objects": [{"Key": "dir/sub0/0"}, {"Key": "dir/b c&d"}, {"Key": "never"}]}
    yield say("delete many", lambda: s3.delete_objects(**at, Delete=gone))
    yield say("list at the end", lambda: s3.list_objects_v2(**at))


def paged(s3: Any, **options: Any) -> dict[str, Any]:
    """All pages of a listing as one answer, with the number of pages as its count."""
    pages = []
    token: dict[str, str] = {}
    while True:
        page = s3.list_objects_v2(Bucket=BUCKET, **options, **token)
        pages.append(page)
        if not page["IsTruncated"]:
            break
        token = {"ContinuationToken": page["NextContinuationToken"]}
    return {
        "ResponseMetadata": pages[-1]["ResponseMetadata"],
        "KeyCount": len(pages),
        "Contents": [item for page in pages for item in page.get("Contents", [])],
        "CommonPrefixes": [item for page in pages for item in page.get("CommonPrefixes", [])],
    }


def multipart(
    s3: Any, say: Callable[[str, Callable[[], dict[str, Any]]], tuple[str, Answer]]
) -> Iterator[tuple[str, Answer]]:
    at = {"Bucket": BUCKET, "Key": "large"}
    bodies = [b"p" * 5 * 1024 * 1024, b"q" * 1000]
    upload = s3.create_multipart_upload(**at)["UploadId"]
    tags = [s3.upload_part(**at, UploadId=upload, PartNumber=n, Body=body)["ETag"] for n, body in enumerate(bodies, 1)]
    yield say("before the upload is complete", lambda: s3.head_object(**at))
    parts = {"Parts": [{"PartNumber": n, "ETag": tag} for n, tag in enumerate(tags, 1)]}
    yield say("complete", lambda: s3.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=parts))
    yield say("head of a multipart object", lambda: s3.head_object(**at))
    yield say("range over the seam", lambda: s3.get_object(**at, Range="bytes=5242878-5242882"))
    dropped = s3.create_multipart_upload(Bucket=BUCKET, Key="dropped")["UploadId"]
    yield say("abort", lambda: s3.abort_multipart_upload(Bucket=BUCKET, Key="dropped", UploadId=dropped))
    yield say("after the abort", lambda: s3.head_object(Bucket=BUCKET, Key="dropped"))


def test_every_operation_is_answered_as_moto_answers_it(moto: str, ours: S3Server) -> None:
    world = ours.add(World("compared"))
    theirs = client(moto, "compared")
    theirs.create_bucket(Bucket=BUCKET)
    mine = client(ours.endpoint, f"{world.name}.client.0")
    compared = 0
    for (name, wanted), (_, found) in zip(conversation(theirs), conversation(mine), strict=True):
        assert found == wanted, name
        compared += 1
    assert compared > 35


def test_lance_leaves_the_same_objects_on_both(moto: str, ours: S3Server) -> None:
    client(moto, "tables").create_bucket(Bucket="tables")
    world = ours.add(World("lance"))
    shapes = [
        shape_after_lance(endpoint, key)
        for endpoint, key in ((moto, "tables"), (ours.endpoint, f"{world.name}.client.0"))
    ]
    assert shapes[0] == shapes[1]


def shape_after_lance(endpoint: str, key: str) -> tuple[list[int], dict[str, int]]:
    """Create, append, delete, branch, compact; then the rows, and how many objects there are in each folder."""
    options = {
        "aws_access_key_id": key,
        "aws_secret_access_key": "secret",
        "region": REGION,
        "endpoint": endpoint,
        "allow_http": "true",
    }
    uri = "s3://tables/t"
    lance.write_dataset(pa.table({"a": [1, 2, 3]}), uri, storage_options=options)
    table = lance.write_dataset(pa.table({"a": [4, 5]}), uri, mode="append", storage_options=options)
    table.delete("a = 2")
    table.create_branch("b")
    table.optimize.compact_files()
    rows = sorted(lance.dataset(uri, storage_options=options).to_table()["a"].to_pylist())
    listed = client(endpoint, key).list_objects_v2(Bucket="tables")["Contents"]
    folders: dict[str, int] = {}
    for item in listed:
        folder = item["Key"].rpartition("/")[0]
        folders[folder] = folders.get(folder, 0) + 1
    return rows, folders
