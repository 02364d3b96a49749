"""Why a store failed, in one word, from the text of its error.

Lance, obstore and the operating system hand over texts, not codes. The texts of S3 hold the code of the error, except
in answers to HEAD, which have a status only. A text that fits nothing has no reason.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Reason(NamedTuple):
    """`phrase` is the reason as a part of a sentence, `remedy` what to do."""

    name: str
    pattern: re.Pattern[str]
    phrase: str
    remedy: str


def _reason(name: str, pattern: str, phrase: str, remedy: str) -> Reason:
    return Reason(name, re.compile(pattern, re.IGNORECASE), phrase, remedy)


_REASONS = (
    _reason(
        "bucket_missing",
        r"NoSuchBucket|bucket does not exist",
        "there is no such bucket",
        "Check the bucket's name and AWS_ENDPOINT_URL, or create the bucket first; nothing was changed.",
    ),
    _reason(
        "bad_credentials",
        r"InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|InvalidSecurity|TokenRefreshRequired"
        r"|AWS credentials|CredentialsError|CredentialsNotLoaded|\b401 Unauthorized|169\.254\.169\.254",
        "the credentials are missing or not valid",
        "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; nothing was changed.",
    ),
    _reason(
        "wrong_region",
        r"incorrectly configured region|AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint"
        r"|301 Moved",
        "the bucket is in another region",
        "Set AWS_REGION to the bucket's region, and AWS_ENDPOINT_URL to its endpoint; nothing was changed.",
    ),
    _reason(
        "access_denied",
        r"AccessDenied|AllAccessDisabled|403 Forbidden|lacked the necessary privileges|Permission ?denied"
        r"|Operation not permitted|os error 13\b|Read-only file ?system",
        "access is denied",
        "Check that this user, or these credentials, may list, read and write there, then repeat the command: nothing "
        "half-done became visible.",
    ),
    _reason(
        "disk_full",
        r"No space left|Disk quota exceeded|StorageFull|QuotaExceeded",
        "there is no space left",
        "Free space, then repeat the command: nothing half-done became visible.",
    ),
    _reason(
        "unreachable",
        r"error sending request|dns error|Connection refused|connection error|connection reset|operation timed out"
        r"|Network is unreachable|No route to host|Transport endpoint is not connected|Stale (NFS )?file handle"
        r"|Host is down",
        "the store can't be reached",
        "Check AWS_ENDPOINT_URL, or the mount of a network disk, and the connection; then repeat the command: nothing "
        "half-done became visible.",
    ),
    _reason(
        "not_a_folder",
        r"Not a directory|NotADirectory",
        "a part of the path is a file",
        "Check the address: every part of it must be a folder.",
    ),
    _reason(
        "damaged_data",
        r"the (data|deletion) file is damaged",
        "a file of rows is damaged",
        "Run `omnigraph verify URI`, which names all damaged files and what can be done about each. Do not run "
        "optimize before: it would take over the damage.",
    ),
    _reason(
        "damaged_index",
        r"the index file is damaged",
        "an index is damaged",
        "Run `omnigraph verify URI`. If no data file is damaged, run `omnigraph optimize URI`, with --branch for "
        "another branch than main: it builds damaged indices anew from the rows.",
    ),
)
_BY_NAME = {reason.name: reason for reason in _REASONS}


def reason_of(detail: str) -> Reason | None:
    """The reason in the text of a store's error; None if it is not a known one."""
    return next((reason for reason in _REASONS if reason.pattern.search(detail)), None)


def named(name: str | None) -> Reason | None:
    return None if name is None else _BY_NAME.get(name)
