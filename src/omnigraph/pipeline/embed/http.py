"""One JSON request to a provider, tried again as long as that makes sense.

Tried again: 408, 429, 500, 502, 503, 504, 529, a connection that is refused, dropped or too slow, an answer that is cut
short. The pause doubles from half a second, with some randomness so that workers do not come back in step; a server's
Retry-After is obeyed up to a limit. Everything else is final: the same request would fail again.

An answer is read up to the size that the vectors asked for can have, generously: whatever is longer is none, and would
only fill the memory.

The key is in a header of this request and nowhere else: redirects are not followed, because a header would follow them,
and a server that repeats the key in its complaint has it blotted out.
"""

from __future__ import annotations

import http.client
import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import orjson

from omnigraph.errors import EmbeddingFailed

TRIES_MAX = 6
TIMEOUT_S = 60.0
PAUSE_FIRST_S, PAUSE_MOST_S = 0.5, 30.0
RETRY_AFTER_MOST_S = 300.0
AGAIN = frozenset({408, 429, 500, 502, 503, 504, 529})
DETAIL_CHARACTERS_MAX = 500
COMPLAINT_BYTES_MAX = 1 << 20
_ANSWER_BYTES_MIN = 1 << 20
_DIMENSIONS_MIN = 4096
"""So many are read however few are declared: a model that gives more is told by its dimensions."""
_VALUE_BYTES = 32
"""A number as text, with its comma and some white space."""


def answer_bytes_max(*, texts: int, dimensions: int) -> int:
    """The size beyond which an answer can't be so many vectors."""
    return _ANSWER_BYTES_MIN + texts * max(dimensions, _DIMENSIONS_MIN) * _VALUE_BYTES


class _TooLong(Exception):
    """An answer that is longer than it can be."""


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
    who: Named,
    bytes_max: int,
    timeout_s: float | None = None,
    tries_most: int = TRIES_MAX,
) -> Any:
    """The answer's JSON. EmbeddingFailed if the server refuses, answers more than `bytes_max`, or always fails."""
    if not url.startswith(("http://", "https://")):
        raise EmbeddingFailed(provider=who.name, model=who.model, status=None, detail=f"{url} is no http address")
    raw = orjson.dumps(body)
    opener = build_opener(_NoRedirects)
    status: int | None = None
    detail = ""
    for turn in range(1, tries_most + 1):
        wait_s: float | None = None
        try:
            request = Request(url, raw, {"Content-Type": "application/json", **headers}, method="POST")
            with opener.open(request, timeout=timeout_s or TIMEOUT_S) as answer:
                return orjson.loads(_body(answer, bytes_max))
        except _TooLong:
            status, detail = None, f"its answer is longer than {bytes_max >> 20} MiB, more than these vectors can need"
            raise EmbeddingFailed(provider=who.name, model=who.model, status=status, detail=detail) from None
        except HTTPError as error:
            status, detail = error.code, _said(error)
            if status not in AGAIN:
                break
            wait_s = _retry_after_s(error.headers.get("Retry-After"))
        except orjson.JSONDecodeError:
            status, detail = None, "its answer is no JSON"
        except (URLError, TimeoutError, ConnectionError, http.client.HTTPException, OSError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            status, detail = None, f"the connection failed: {reason or type(error).__name__}"
        if turn < tries_most:
            time.sleep(_pause_s(turn) if wait_s is None else wait_s)
    tries = f" ({tries_most} tries)" if status is None or status in AGAIN else ""
    told = detail.replace(secret, "***")[:DETAIL_CHARACTERS_MAX]
    raise EmbeddingFailed(provider=who.name, model=who.model, status=status, detail=f"{told}{tries}")


def _body(answer: Any, bytes_max: int) -> bytes:
    raw: bytes = answer.read(bytes_max + 1)
    if len(raw) > bytes_max:
        raise _TooLong
    if answer.length:
        raise http.client.IncompleteRead(raw, answer.length)  # as a read without a limit does
    return raw


def _pause_s(turn: int) -> float:
    return float(min(PAUSE_MOST_S, PAUSE_FIRST_S * 2 ** (turn - 1)) * random.uniform(0.75, 1.25))


def _retry_after_s(text: str | None) -> float | None:
    """Seconds, or a date; None if the server did not say or nobody can read it."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except ValueError:
            return None
    return min(RETRY_AFTER_MOST_S, max(0.0, seconds)) if seconds == seconds else None


def _said(error: HTTPError) -> str:
    """The server's own words: the message of its JSON if there is one."""
    try:
        raw = error.read(COMPLAINT_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        return f"HTTP {error.code}"
    try:
        found = orjson.loads(raw)["error"]
        text = found["message"] if isinstance(found, dict) else found
    except (orjson.JSONDecodeError, KeyError, TypeError):
        text = raw.decode(errors="replace")
    return f"HTTP {error.code}: {' '.join(str(text).split())}" if str(text).strip() else f"HTTP {error.code}"
