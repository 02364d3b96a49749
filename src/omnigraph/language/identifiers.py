"""The form of every name, id and number that is read from storage. Only this module defines these forms.

The content of a graph's folder is untrusted: a disk may have failed, or an attacker may have written a path that leaves
the folder, a filter text that selects other rows, an escape sequence for the terminal. So each value that becomes a
path, a name or a part of a filter is compared with its form once, when it is read and before it is used: after that the
rest of the program relies on it.

| form | of |
|---|---|
| type_name, property_name, word | as in the grammar of the schema language |
| type_id, property_id | a letter and base32 digits, as `schema/ids.py` generates them |
| incarnation | hexadecimal digits: the incarnation of a table or of a branch |
| branch | parts of letters, digits, '.', '_' and '-', joined by '/', none of which consists of dots only |
| fork | the name of a fork below the `tree/` of a table: the form of a branch name covers those of every generation |
| token | ids of commits and schemas, kinds, nonces: letters, digits, '_', '-', ':' and '.' |
| file_name | a file that a Lance version names, relative to a folder |

Every function returns its argument or raises Malformed. A check takes well under a microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from omnigraph.errors import HostileOrDamagedManifest

T = TypeVar("T")

BRANCH_LENGTH_MAX = 200
SHOWN_MAX = 80
VERSION_MAX = 2**63 - 1
TIME_US_MAX = 253_402_300_799_999_999
"""The last microsecond of the year 9999, the largest `datetime`."""
BRANCH_PART = re.compile(r"[A-Za-z0-9._-]+")


class Malformed(ValueError):
    """A stored value that does not have its required form. Readers add where it was (`reading`)."""


def _form(what: str, pattern: str) -> Callable[[Any], str]:
    match = re.compile(pattern).fullmatch

    def check(value: Any) -> str:
        if isinstance(value, str) and match(value) is not None:
            return value
        raise Malformed(f"{shown(value)} is not {what}")

    return check


def shown(value: Any) -> str:
    """A value for a message: in ASCII, so that it holds no control characters, and cut to SHOWN_MAX characters."""
    text = ascii(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


type_name = _form("the name of a type", r"[A-Z][A-Za-z0-9_]*")
property_name = _form("the name of a property", r"[a-z_][A-Za-z0-9_]*")
word = _form("a word of a schema", r"[A-Za-z_][A-Za-z0-9_]*")
type_id = _form("the id of a type", r"[ne][0-9a-z]{1,31}")
node_id = _form("the id of a node type", r"n[0-9a-z]{1,31}")
edge_id = _form("the id of an edge type", r"e[0-9a-z]{1,31}")
property_id = _form("the id of a property", r"p[0-9a-z]{1,31}")
incarnation = _form("an incarnation", r"[0-9a-f]{1,64}")
token = _form("an id", r"[A-Za-z0-9_.:-]{1,128}")
file_name = _form("a file of a table", r"(?!.*(?:^|/)\.{1,2}(?:/|$))[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")


def branch(value: Any) -> str:
    if isinstance(value, str) and 0 < len(value) <= BRANCH_LENGTH_MAX and is_branch_path(value):
        return value
    raise Malformed(f"{shown(value)} is not the name of a branch")


def is_branch_path(name: str) -> bool:
    """Whether every part of a name is a valid part of a branch name, and so of a path."""
    return all(BRANCH_PART.fullmatch(part) and part.strip(".") for part in name.split("/"))


def fork(value: Any) -> str:
    if isinstance(value, str) and 0 < len(value) <= 2 * BRANCH_LENGTH_MAX and is_branch_path(value):
        return value
    raise Malformed(f"{shown(value)} is not the name of a fork")


def version(value: Any) -> int:
    """The number of a Lance version."""
    if type(value) is int and 0 < value <= VERSION_MAX:
        return value
    raise Malformed(f"{shown(value)} is not a version")


def count(value: Any) -> int:
    """A count, a distance, an epoch."""
    if type(value) is int and 0 <= value <= VERSION_MAX:
        return value
    raise Malformed(f"{shown(value)} is not a number of things")


def number(value: Any) -> float:
    """A real amount: seconds, a share."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return value
    raise Malformed(f"{shown(value)} is not an amount")


def fragment(value: Any) -> int:
    """The id of a fragment: row addresses have 32 bits for it."""
    if type(value) is int and 0 <= value < 2**32:
        return value
    raise Malformed(f"{shown(value)} is not a fragment")


def flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise Malformed(f"{shown(value)} is neither true nor false")


def time_us(value: Any) -> int:
    if type(value) is int and 0 <= value <= TIME_US_MAX:
        return value
    raise Malformed(f"{shown(value)} is not a time in microseconds")


def text(value: Any) -> str:
    """Free text that the program does not interpret: names of actors, ids that clients choose."""
    if isinstance(value, str):
        return value
    raise Malformed(f"{shown(value)} is not a text")


def mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    raise Malformed(f"{shown(value)} is not an object of JSON")


def sequence(value: Any) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    raise Malformed(f"{shown(value)} is not a list of JSON")


def optional(check: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else check(value)


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Raise HostileOrDamagedManifest, which names the place, for a malformed stored value."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        detail = str(error) if isinstance(error, Malformed) else f"{type(error).__name__}: {shown(str(error))}"
        raise HostileOrDamagedManifest(where=where, detail=detail) from error
