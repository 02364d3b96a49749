"""Secrets stay out of errors, plans and logs: the one function through which such texts go.

* the user and password of a URL (`http://user:password@host`), and what signs a URL (`X-Amz-Signature=…`, `sig=…`)
* the values of environment variables whose names mark them as secret
* the values of the variables of a pipeline file while it is checked, planned or run (`concealing`): they show as
  `${NAME}`

A value that is shorter than SECRET_MIN characters is no secret, and would match everywhere. Every error redacts its
fields when it is made, so also those that a task sends from another process. Results of queries and data that is
written are never changed.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

SECRET_MIN = 8
VARIABLE_MIN = 4
HIDDEN = "***"
_USER_INFO = re.compile(r"(?<=://)[^/\s@'\"<>]+@(?=[^\s'\"])")
_SIGNED = re.compile(
    r"\b(X-Amz-(?:Signature|Credential|Security-Token)|Signature|sig|AWSAccessKeyId|access_token|password)=[^&\s'\"<>]+",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(
    r"SECRET|PASSWORD|PASSWD|TOKEN|API_?KEY|ACCESS_?KEY(?!_ID)|PRIVATE_?KEY|CREDENTIAL", re.IGNORECASE
)
_lock = threading.Lock()
_concealed: list[Mapping[str, str]] = []


def is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(name))


def redact(text: str) -> str:
    """The text without secrets."""
    for value, shown in _values():
        if value in text:
            text = text.replace(value, shown)
    for name, value in _variables():
        if value in text:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])", f"${{{name}}}", text)
    if "://" in text:
        text = _USER_INFO.sub(f"{HIDDEN}@", text)
    return _SIGNED.sub(rf"\1={HIDDEN}", text) if "=" in text else text


def redacted(value: Any) -> Any:
    """The same for a JSON value, however deep; other values stay what they are."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: redacted(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(redacted(item) for item in value)
    return value


@contextmanager
def concealing(variables: Mapping[str, str]) -> Iterator[None]:
    """Show the values of these variables by their names while the block runs, in every thread."""
    with _lock:
        _concealed.append(variables)
    try:
        yield
    finally:
        with _lock:
            _concealed.remove(variables)


def _values() -> Iterator[tuple[str, str]]:
    """Values that are hidden wherever they stand, and what is shown instead: the longest first."""
    shown_by_value = {v: HIDDEN for k, v in os.environ.items() if len(v) >= SECRET_MIN and is_secret_name(k)}
    with _lock:
        for variables in _concealed:
            secrets = {v: f"${{{k}}}" for k, v in variables.items() if len(v) >= VARIABLE_MIN and is_secret_name(k)}
            shown_by_value |= secrets
    return iter(sorted(shown_by_value.items(), key=lambda pair: -len(pair[0])))


def _variables() -> list[tuple[str, str]]:
    with _lock:
        pairs = [(k, v) for variables in _concealed for k, v in variables.items() if len(v) >= VARIABLE_MIN]
    return sorted(set(pairs), key=lambda pair: -len(pair[1]))
