"""The files that one version of a table refers to, read from the version's own file.

Lance's `tracked_files` returns the same for all versions of a table, by opening each. That costs three times as much,
and cleanup reads hundreds of versions that it is about to remove. So this reads only the few fields that name files:

    <sections> <manifest as protobuf, after its length> … <offset of the manifest, 8 bytes> <format, 4 bytes> LANC

The parser is strict: an unlisted field may name an unknown kind of file. For such a field, and for anything else
unexpected, it raises NotUnderstood, and the caller uses Lance instead. Tests compare both.

`with_bases` writes such a file with other base paths. Only the manifest's own message changes, which is the last before
the footer: sections stay where they are, and so do the offsets that name them. The transaction section of a fork's
first version records the address of the table that it was cloned from; nothing opens it, and it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

_MARK = b"LANC"
FOOTER_BYTES = 16
# Numbers of fields, as Lance's table.proto has them.
_FRAGMENT_KEY = 0x12
"""Field 2 with a length: how every fragment begins."""
_CONFIG_KEY = bytes((0x82, 0x01))
"""Field 16 with a length: how every config entry begins."""
_FRAGMENT, _INDEX_SECTION, _TRANSACTION_FILE, _BASE_PATH = 2, 6, 12, 18
_MANIFEST_FIELDS = frozenset({*range(1, 22), 23})
"""23 is the offset of the transaction in the file, which describes the change and refers to no files of the version."""
_TRANSACTION_SECTION, _RESTORE = 23, 106
_FRAGMENT_FIELDS = frozenset({1, 2, 3, 4, 5, 7, 9})
"""Without 6, 8 and 10, which would be files of row ids and row versions of their own; Lance writes them inline."""
_DATA_FIELDS = frozenset({1, 2, 3, 4, 5, 6, 7})
_DELETION_FIELDS = frozenset({1, 2, 3, 4, 7})
_INDEX_FIELDS = frozenset(range(1, 11))
_BASE_PATH_KEY, _BASE_PATH_PATH_KEY = 18 << 3 | 2, 4 << 3 | 2
_DELETION_SUFFIXES = {0: "arrow", 1: "bin"}


class NotUnderstood(Exception):
    """The file has an unknown field or form. The caller uses Lance instead."""


@dataclass(frozen=True)
class VersionFile:
    """The parts of one version that name files: fragments and index entries in raw form, each to be parsed once."""

    fragments: tuple[bytes, ...]
    indices: tuple[bytes, ...]
    transaction: str | None
    bases: dict[int, str] = field(default_factory=dict)
    restores: int | None = None
    """The version that this one restores, which undoes all versions between the two; 0 if unknown."""


Reference = tuple[int | None, str]
"""The id of a base path, None for the version's own folder, and a path below it; an index ends in a slash."""


def parse_version(raw: bytes) -> VersionFile:
    if len(raw) < 20 or raw[-4:] != _MARK:
        raise NotUnderstood("it does not end as a version does")
    start, stop = bounds(raw, int.from_bytes(raw[-16:-8], "little"))
    at, end = _fragments_from(raw, start, stop)
    fragments, after = _run_of_fragments(raw, at, end)
    indices: tuple[bytes, ...] = ()
    transaction: str | None = None
    bases: dict[int, str] = {}
    restores: int | None = 0
    config, rest = _config_entries(raw, after, stop)
    for number, value in (*_fields(raw, start, at), *_fields(raw, after, config), *_fields(raw, rest, stop)):
        if number == _FRAGMENT:
            fragments.append(_bytes(value))
        elif number == _TRANSACTION_FILE:
            transaction = _bytes(value).decode()
        elif number == _INDEX_SECTION:
            indices = tuple(_bytes(v) for n, v in _fields(raw, *bounds(raw, as_number(value))) if n == 1)
        elif number == _BASE_PATH:
            base, path = _base(_bytes(value))
            bases[base] = path
        elif number == _TRANSACTION_SECTION:
            restores = _restored(raw, *bounds(raw, as_number(value)))
        elif number not in _MANIFEST_FIELDS:
            raise NotUnderstood(f"field {number} of a manifest")
    return VersionFile(tuple(fragments), indices, transaction or None, bases, restores)


def _config_entries(raw: bytes, at: int, stop: int) -> tuple[int, int]:
    """Where the run of config entries begins and ends. Written for speed: the manifest of a graph holds an entry per
    branch, in each of its versions.
    """
    try:
        while at < stop and raw[at : at + 2] != _CONFIG_KEY:
            key, at = varint(raw, at)
            at = _end_of_field(raw, key, at)
        begin = at
        while at < stop and raw[at : at + 2] == _CONFIG_KEY:
            size = raw[at + 2]
            at += 3
            if size >= 128:
                more = raw[at]
                at += 1
                if more < 128:
                    size = (size & 127) | (more << 7)
                else:
                    size, at = varint(raw, at - 2)
            at += size
    except IndexError as error:
        raise NotUnderstood("it is cut short") from error
    if at > stop:
        raise NotUnderstood("it is cut short")
    return begin, at


def _restored(raw: bytes, at: int, stop: int) -> int | None:
    """The version that a transaction restores; None if it is another operation."""
    for number, value in _fields(raw, at, stop):
        if number == _RESTORE:
            return next((as_number(v) for n, v in _fields(_bytes(value)) if n == 1), 0)
    return None


def _fragments_from(raw: bytes, start: int, stop: int) -> tuple[int, int]:
    """Where the first fragment's field begins, and the end of the message; both the end if there is none."""
    at = start
    while at < stop:
        begin = at
        key, at = varint(raw, at)
        if key == _FRAGMENT_KEY:
            return begin, stop
        at = _end_of_field(raw, key, at)
    return stop, stop


def _run_of_fragments(raw: bytes, at: int, stop: int) -> tuple[list[bytes], int]:
    """The consecutive fragments, and where they end. Written for speed: they are most of a file."""
    fragments: list[bytes] = []
    add = fragments.append
    try:
        while at < stop and raw[at] == _FRAGMENT_KEY:
            size = raw[at + 1]
            at += 2
            if size >= 128:
                more = raw[at]
                at += 1
                if more < 128:
                    size = (size & 127) | (more << 7)
                else:
                    size, at = varint(raw, at - 2)
            add(raw[at : at + size])
            at += size
    except IndexError as error:
        raise NotUnderstood("it is cut short") from error
    return fragments, at


def fragment_references(raw: bytes) -> Iterator[Reference]:
    """The files of one fragment."""
    fragment = 0
    deletion: bytes | None = None
    for number, value in _fields(raw):
        if number == 1:
            fragment = as_number(value)
        elif number == 2:
            yield _data_file(_bytes(value))
        elif number == 3:
            deletion = _bytes(value)
        elif number not in _FRAGMENT_FIELDS:
            raise NotUnderstood(f"field {number} of a fragment")
    if deletion is not None:
        yield _deletion_file(fragment, deletion)


def index_reference(raw: bytes) -> Reference:
    """The folder of one index."""
    uuid: UUID | None = None
    base: int | None = None
    for number, value in _fields(raw):
        if number == 1:
            uuid = next((UUID(bytes=_bytes(v)) for n, v in _fields(_bytes(value)) if n == 1), None)
        elif number == 9:
            base = as_number(value)
        elif number not in _INDEX_FIELDS:
            raise NotUnderstood(f"field {number} of an index")
    if uuid is None:
        raise NotUnderstood("an index without a name")
    return base, f"_indices/{uuid}/"


def _data_file(raw: bytes) -> Reference:
    path, base = "", None
    for number, value in _fields(raw):
        if number == 1:
            path = _bytes(value).decode()
        elif number == 7:
            base = as_number(value)
        elif number not in _DATA_FIELDS:
            raise NotUnderstood(f"field {number} of a data file")
    if not path:
        raise NotUnderstood("a data file without a path")
    return base, f"data/{path}"


def _deletion_file(fragment: int, raw: bytes) -> Reference:
    found = {1: 0, 2: 0, 3: 0}
    base: int | None = None
    for number, value in _fields(raw):
        if number in found:
            found[number] = as_number(value)
        elif number == 7:
            base = as_number(value)
        elif number not in _DELETION_FIELDS:
            raise NotUnderstood(f"field {number} of a deletion file")
    suffix = _DELETION_SUFFIXES.get(found[1])
    if suffix is None:
        raise NotUnderstood(f"deletion files of type {found[1]}")
    return base, f"_deletions/{fragment}-{found[2]}-{found[3]}.{suffix}"


def _base(raw: bytes) -> tuple[int, str]:
    base, path, is_root = 0, "", 0
    for number, value in _fields(raw):
        if number == 1:
            base = as_number(value)
        elif number == 3:
            is_root = as_number(value)
        elif number == 4:
            path = _bytes(value).decode()
        elif number != 2:
            raise NotUnderstood(f"field {number} of a base path")
    if not is_root:
        raise NotUnderstood("a base path that is no table")
    return base, path


# ---- writing ---------------------------------------------------------------------------------------------------------


def with_bases(raw: bytes, renamed: Callable[[str], str]) -> bytes:
    """The file of the same version with every base path replaced by `renamed(path)`; the same bytes if none changes."""
    before = parse_version(raw)  # as strict in writing as in reading
    start, stop = bounds(raw, int.from_bytes(raw[-FOOTER_BYTES:-8], "little"))
    if stop != len(raw) - FOOTER_BYTES:
        raise NotUnderstood("the manifest is not the last section")
    body = b"".join(
        as_field(key, _renamed_base(value, renamed)) if key == _BASE_PATH_KEY else whole
        for key, value, whole in raw_fields(raw[start:stop])
    )
    written = raw[: start - 4] + len(body).to_bytes(4, "little") + body + raw[stop:]
    after = parse_version(written)
    assert after.bases == {base: renamed(path) for base, path in before.bases.items()}
    assert (after.fragments, after.indices) == (before.fragments, before.indices)
    return written


def _renamed_base(raw: bytes, renamed: Callable[[str], str]) -> bytes:
    return b"".join(
        as_field(key, renamed(value.decode()).encode()) if key == _BASE_PATH_PATH_KEY else whole
        for key, value, whole in raw_fields(raw)
    )


def raw_fields(raw: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(key, content, all bytes) of every field of a message; the content is empty of a field without a length."""
    at = 0
    while at < len(raw):
        key, behind_key = varint(raw, at)
        end = _end_of_field(raw, key, behind_key)
        if end > len(raw):
            raise NotUnderstood("it is cut short")
        content = raw[varint(raw, behind_key)[1] : end] if key & 7 == 2 else b""
        yield key, content, raw[at:end]
        at = end


def as_field(key: int, content: bytes) -> bytes:
    return as_varint(key) + as_varint(len(content)) + content


def as_varint(value: int) -> bytes:
    found = bytearray()
    while value >= 128:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes((*found, value))


# ---- protobuf --------------------------------------------------------------------------------------------------------


def bounds(raw: bytes, start: int) -> tuple[int, int]:
    """Where a message lies that stands behind its length."""
    end = start + 4 + int.from_bytes(raw[start : start + 4], "little")
    if not 0 <= start < end <= len(raw):
        raise NotUnderstood("a section lies outside of the file")
    return start + 4, end


def _end_of_field(raw: bytes, key: int, at: int) -> int:
    """Where a field ends whose key ends at `at`."""
    kind = key & 7
    if kind == 2:
        size, at = varint(raw, at)
        return at + size
    if kind == 0:
        return varint(raw, at)[1]
    if kind in (1, 5):
        return at + (8 if kind == 1 else 4)
    raise NotUnderstood(f"wire type {kind}")


def _fields(raw: bytes, at: int = 0, end: int | None = None) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of every field: a number, or bytes."""
    stop = len(raw) if end is None else end
    try:
        while at < stop:
            key = raw[at]
            at += 1
            if key >= 128:
                key, at = varint(raw, at - 1)
            kind = key & 7
            if kind == 2:
                size = raw[at]
                at += 1
                if size >= 128:
                    size, at = varint(raw, at - 1)
                yield key >> 3, raw[at : at + size]
                at += size
            elif kind == 0:
                value, at = varint(raw, at)
                yield key >> 3, value
            elif kind in (1, 5):
                size = 8 if kind == 1 else 4
                yield key >> 3, int.from_bytes(raw[at : at + size], "little")
                at += size
            else:
                raise NotUnderstood(f"wire type {kind}")
    except IndexError as error:
        raise NotUnderstood("it is cut short") from error
    if at != stop:
        raise NotUnderstood("it is cut short")


def varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
    except IndexError as error:
        raise NotUnderstood("it is cut short") from error


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise NotUnderstood("a number where bytes are expected")
    return value


def as_number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise NotUnderstood("bytes where a number is expected")
    return value
