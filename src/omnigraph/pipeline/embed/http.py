"""One JSON request to a provider, with retries.

Retried: 408, 429, 500, 502, 503, 504, 529, a connection that is refused, dropped or too slow, a truncated response. The
pause doubles from half a second, with jitter so that workers do not retry at the same time; a server's Retry-After is
obeyed up to a limit. Everything else is final: the same request would fail again.

A response is read up to a generous estimate of the size of the requested vectors; a longer one is refused, so that it
does not fill the memory.

The key is in a header of this request and nowhere else: redirects are not followed, because the header would be sent
along, and if a server repeats the key in its error message, it is replaced by asterisks.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import orjson

from omnigraph.config.backoff import Backoff
from omnigraph.errors import EmbeddingFailed

TRIES_MAX = 6
TIMEOUT_S = 60.0
PAUSE_FIRST_S, PAUSE_MAX_S = 0.5, 30.0
RETRY_AFTER_MAX_S = 300.0
RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 529})
DETAIL_CHARACTERS_MAX = 500
COMPLAINT_BYTES_MAX = 1 << 20
_ANSWER_BYTES_MIN = 1 << 20
_DIMENSIONS_MIN = 4096
"""The size limit is computed for at least this many, so that a wrong number of dimensions is reported as such."""
_VALUE_BYTES = 32
"""A number as text, with its comma and some white space."""


def answer_bytes_max(*, texts: int, dimensions: int) -> int:
    """The maximum size of a response with this many vectors."""
    return _ANSWER_BYTES_MIN + texts * max(dimensions, _DIMENSIONS_MIN) * _VALUE_BYTES


class _TooLong(Exception):
    """A response above the size limit."""


class Named(Protocol):
    name: str
    model: str


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def post(
    url: str,
    body: Any,
    *,
    headers: Mapping[str, str],
    secret: str,
    provider: Named,
    bytes_max: int,
    timeout_s: float | None = None,
    tries_max: int = TRIES_MAX,
) -> Any:
    """The response's JSON. EmbeddingFailed if the server refuses, sends more than `bytes_max`, or all tries fail."""
    if not url.startswith(("http://", "https://")):
        raise EmbeddingFailed(
            provider=provider.name, model=provider.model, status=None, detail=f"{url} is no http address"
        )
    raw = orjson.dumps(body)
    opener = build_opener(_NoRedirects)
    status: int | None = None
    detail = ""
    backoff = Backoff(first_s=PAUSE_FIRST_S, max_s=PAUSE_MAX_S, jitter=0.25)
    for attempt in range(1, tries_max + 1):
        wait_s: float | None = None
        try:
            request = Request(url, raw, {"Content-Type": "application/json", **headers}, method="POST")
            with opener.open(request, timeout=timeout_s or TIMEOUT_S) as answer:
                return orjson.loads(_body(answer, bytes_max))
        except _TooLong:
            status, detail = None, f"its answer is longer than {bytes_max >> 20} MiB, more than these vectors can need"
            raise EmbeddingFailed(provider=provider.name, model=provider.model, status=status, detail=detail) from None
        except HTTPError as error:
            status, detail = error.code, _server_message(error)
            if status not in RETRIED_STATUSES:
                break
            wait_s = _retry_after_s(error.headers.get("Retry-After"))
        except orjson.JSONDecodeError:
            status, detail = None, "its answer is no JSON"
        except (URLError, TimeoutError, ConnectionError, http.client.HTTPException, OSError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            status, detail = None, f"the connection failed: {reason or type(error).__name__}"
        if attempt < tries_max:
            pause_s = backoff.next_s()
            time.sleep(pause_s if wait_s is None else wait_s)
    tries = f" ({tries_max} tries)" if status is None or status in RETRIED_STATUSES else ""
    shown_detail = detail.replace(secret, "***")[:DETAIL_CHARACTERS_MAX]
    raise EmbeddingFailed(provider=provider.name, model=provider.model, status=status, detail=f"{shown_detail}{tries}")


def _body(answer: Any, bytes_max: int) -> bytes:
    raw: bytes = answer.read(bytes_max + 1)
    if len(raw) > bytes_max:
        raise _TooLong
    if answer.length:
        raise http.client.IncompleteRead(raw, answer.length)  # as a read without a limit does
    return raw


def _retry_after_s(text: str | None) -> float | None:
    """Seconds, or a date; None if the header is missing or malformed."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except ValueError:
            return None
    return min(RETRY_AFTER_MAX_S, max(0.0, seconds)) if seconds == seconds else None


def _server_message(error: HTTPError) -> str:
    """The server's message: that of its JSON if there is one."""
    try:
        raw = error.read(COMPLAINT_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        return f"HTTP {error.code}"
    try:
        body = orjson.loads(raw)["error"]
        text = body["message"] if isinstance(body, dict) else body
    except (orjson.JSONDecodeError, KeyError, TypeError):
        text = raw.decode(errors="replace")
    return f"HTTP {error.code}: {' '.join(str(text).split())}" if str(text).strip() else f"HTTP {error.code}"
