"""What S3 does, without a network: one function from a request to a response over a dictionary of immutable objects.

Covers what Lance and obstore ask for: GET with ranges, HEAD, PUT (plain, If-None-Match: *, If-Match), COPY, DELETE,
bulk delete, ListObjectsV2 (prefix, delimiter, start-after, continuation) and multipart uploads. Objects are values, so
that a snapshot of a bucket is a copy of its dictionary. `test_s3server_matches_moto.py` holds this against moto.

`Store(conditional=False)` is a store that ignores If-None-Match and If-Match on every request that writes: PUT, COPY
and the end of a multipart upload.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import time
import urllib.parse
from dataclasses import dataclass, field
from email.utils import formatdate
from xml.sax.saxutils import escape, unescape

# Operations that can change what is stored; all others only look.
MUTATIONS = frozenset(
    {"PUT", "CREATE", "SWAP", "COPY", "DELETE", "BULK_DELETE", "MP_START", "MP_PART", "MP_FINISH", "MP_ABORT"}
)


@dataclass(frozen=True)
class Object:
    body: bytes
    etag: str
    modified_s: float


@dataclass(frozen=True)
class Request:
    """One HTTP request, its target already split. `key` is empty for requests to the bucket itself."""

    method: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def operation(self) -> str:
        """The S3 operation; CREATE and SWAP are conditional puts, as the commit protocols use them."""
        if not self.key:
            return "BULK_DELETE" if "delete" in self.query else "LIST"
        if "uploads" in self.query:
            return "MP_START"
        if "uploadId" in self.query:
            return {"PUT": "MP_PART", "POST": "MP_FINISH", "DELETE": "MP_ABORT"}[self.method]
        if self.method != "PUT":
            return self.method
        if "x-amz-copy-source" in self.headers:
            return "COPY"
        if "if-none-match" in self.headers:
            return "CREATE"
        return "SWAP" if "if-match" in self.headers else "PUT"

    @property
    def subject(self) -> str:
        """What the request is about: the key, or the prefix of a listing."""
        return self.key or self.query.get("prefix", "")


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def error(status: int, code: str) -> Response:
    return Response(
        status, {}, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    )


class Store:
    """The objects and open uploads of one world. Not thread-safe: one thread owns it."""

    def __init__(self, objects: dict[str, Object] | None = None, *, conditional: bool = True) -> None:
        self.objects: dict[str, Object] = dict(objects or {})
        self.conditional = conditional
        self.uploads: dict[str, dict[int, bytes]] = {}
        self._upload_ids = itertools.count(1)

    def apply(self, request: Request) -> Response:
        """Perform the request. Every branch is atomic, as on S3."""
        handler = getattr(self, "_" + request.operation.lower(), None)
        return handler(request) if handler else error(400, "NotImplemented")

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _get(self, request: Request) -> Response:
        found = self.objects.get(request.key)
        if found is None:
            return error(404, "NoSuchKey")
        if request.headers.get("if-match", found.etag) != found.etag:
            return error(412, "PreconditionFailed")
        headers = {
            "ETag": found.etag,
            "Last-Modified": formatdate(found.modified_s, usegmt=True),
            "Accept-Ranges": "bytes",
        }
        wanted = request.headers.get("range")
        if wanted is None:
            return Response(200, headers, found.body)
        span = _span(wanted, len(found.body))
        if span is None:
            return error(416, "InvalidRange")
        start, stop = span
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(found.body)}"
        return Response(206, headers, found.body[start:stop])

    _head = _get

    def _list(self, request: Request) -> Response:
        query = request.query
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        room = int(query.get("max-keys", 1000))
        names: list[str] = []
        folders: list[str] = []
        last, truncated = "", False
        for key in sorted(key for key in self.objects if key.startswith(prefix)):
            head, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            name = prefix + head + delimiter if cut else key
            if name <= after or (cut and folders[-1:] == [name]):
                continue
            if len(names) + len(folders) == room:
                truncated = True
                break
            (folders if cut else names).append(name)
            last = name
        parts = [self._listed(name) for name in names]
        parts += [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders]
        if truncated:
            parts.append(f"<NextContinuationToken>{escape(last)}</NextContinuationToken>")
        body = (
            "<?xml version='1.0'?><ListBucketResult>"
            f"<Name>{escape(request.bucket)}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(names) + len(folders)}</KeyCount><MaxKeys>{room}</MaxKeys>"
            f"<IsTruncated>{str(truncated).lower()}</IsTruncated>{''.join(parts)}</ListBucketResult>"
        )
        return Response(200, {}, body.encode())

    def _listed(self, name: str) -> str:
        found = self.objects[name]
        whole, fraction = divmod(found.modified_s, 1)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int(fraction * 1000):03d}Z"
        return (
            f"<Contents><Key>{escape(name)}</Key><LastModified>{stamp}</LastModified>"
            f"<ETag>{escape(found.etag)}</ETag><Size>{len(found.body)}</Size></Contents>"
        )

    # ---- writing -----------------------------------------------------------------------------------------------------

    def _keep(self, key: str, body: bytes, etag: str | None = None) -> str:
        etag = etag or f'"{_md5(body).hex()}"'
        self.objects[key] = Object(body, etag, time.time())
        return etag

    def _put(self, request: Request) -> Response:
        return Response(200, {"ETag": self._keep(request.key, request.body)})

    def _create(self, request: Request) -> Response:
        return self._refused(request) or self._put(request)

    def _refused(self, request: Request) -> Response | None:
        """The answer to a create-only request for a key that is taken."""
        create_only = self.conditional and "if-none-match" in request.headers
        return error(412, "PreconditionFailed") if create_only and request.key in self.objects else None

    def _swap(self, request: Request) -> Response:
        found = self.objects.get(request.key)
        if self.conditional and found is None:
            return error(404, "NoSuchKey")
        if self.conditional and found is not None and found.etag != request.headers["if-match"]:
            return error(412, "PreconditionFailed")
        return self._put(request)

    def _copy(self, request: Request) -> Response:
        source = urllib.parse.unquote(request.headers["x-amz-copy-source"]).lstrip("/").partition("/")[2]
        found = self.objects.get(source)
        if found is None:
            return error(404, "NoSuchKey")
        if refusal := self._refused(request):
            return refusal
        etag = self._keep(request.key, found.body)
        return Response(200, {}, f"<CopyObjectResult><ETag>{escape(etag)}</ETag></CopyObjectResult>".encode())

    def _delete(self, request: Request) -> Response:
        self.objects.pop(request.key, None)
        return Response(204)

    def _bulk_delete(self, request: Request) -> Response:
        keys = [
            unescape(key, {"&quot;": '"', "&apos;": "'"})
            for key in re.findall("<Key>(.*?)</Key>", request.body.decode())
        ]
        for key in keys:
            self.objects.pop(key, None)
        gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        return Response(200, {}, f"<DeleteResult>{gone}</DeleteResult>".encode())

    # ---- multipart ---------------------------------------------------------------------------------------------------

    def _mp_start(self, request: Request) -> Response:
        upload = f"upload-{next(self._upload_ids)}"
        self.uploads[upload] = {}
        body = (
            f"<InitiateMultipartUploadResult><Bucket>{escape(request.bucket)}</Bucket><Key>{escape(request.key)}</Key>"
            f"<UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        )
        return Response(200, {}, body.encode())

    def _mp_part(self, request: Request) -> Response:
        parts = self.uploads.get(request.query["uploadId"])
        if parts is None:
            return error(404, "NoSuchUpload")
        parts[int(request.query["partNumber"])] = request.body
        return Response(200, {"ETag": f'"{_md5(request.body).hex()}"'})

    def _mp_finish(self, request: Request) -> Response:
        if refusal := self._refused(request):
            return refusal
        parts = self.uploads.pop(request.query["uploadId"], None)
        if parts is None:
            return error(404, "NoSuchUpload")
        bodies = [parts[n] for n in sorted(parts)]
        digest = _md5(b"".join(_md5(body) for body in bodies)).hex()
        etag = self._keep(request.key, b"".join(bodies), f'"{digest}-{len(bodies)}"')
        body = (
            f"<CompleteMultipartUploadResult><Key>{escape(request.key)}</Key>"
            f"<ETag>{escape(etag)}</ETag></CompleteMultipartUploadResult>"
        )
        return Response(200, {}, body.encode())

    def _mp_abort(self, request: Request) -> Response:
        self.uploads.pop(request.query["uploadId"], None)
        return Response(204)


def _md5(body: bytes) -> bytes:
    return hashlib.md5(body, usedforsecurity=False).digest()


def _span(header: str, size: int) -> tuple[int, int] | None:
    """The half-open byte range of a `Range: bytes=…` header, or None where it lies outside the object."""
    first, _, last = header.removeprefix("bytes=").partition("-")
    if not first:
        return (max(0, size - int(last)), size) if int(last) and size else None
    start = int(first)
    stop = min(size, int(last) + 1) if last else size
    return (start, stop) if start < size else None
