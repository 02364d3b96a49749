"""One version of a fork, or of a root table, as the only version of a root table that needs no other.

A fork reads files of its root table, and of the forks that it was made from, through base paths. Here all of them lie
in one folder: data in `data/`, marks of deleted rows in `_deletions/`, indices in `_indices/`. Their names are random,
so files of different lines do not meet. In the version's file

* data files, deletion files and indices lose the base that they lie at; base paths, the name of the fork, and the flag
  that says that there are base paths go
* the transaction goes, which refers to versions that are not there
* everything else stays: rows, row ids, fragment ids, the number of the version, coverage of indices

As in `versionfile`, what is not known is NotUnderstood, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from omnigraph.storage.files.version_file import (
    FOOTER_BYTES,
    NotUnderstood,
    as_field,
    as_varint,
    bounds,
    parse_version,
    raw_fields,
    varint,
)

# Numbers of fields, as Lance's table.proto has them.
_FRAGMENTS, _INDEX_SECTION, _READER_FLAGS, _WRITER_FLAGS, _TRANSACTION_FILE = 2, 6, 9, 10, 12
_BASE_PATHS, _BRANCH, _TRANSACTION_SECTIONS = 18, 20, (21, 23)
_AUXILIARY = 4
_FRAGMENT_FILES, _FRAGMENT_DELETION = 2, 3
_FILE_BASE, _INDEX_BASE = 7, 9
_MANY_BASES = 1 << 4


def flattened(raw: bytes) -> bytes:
    """The file of the same version, of a table that keeps all its files in one folder."""
    before = parse_version(raw)
    start, stop = bounds(raw, int.from_bytes(raw[-FOOTER_BYTES:-8], "little"))
    if stop != len(raw) - FOOTER_BYTES:
        raise NotUnderstood("the manifest is not the last section")
    indices = b"".join(as_field(1 << 3 | 2, _without(index, _INDEX_BASE)) for index in before.indices)
    section = len(indices).to_bytes(4, "little") + indices if before.indices else b""
    body = b"".join(_manifest(raw[start:stop], has_indices=bool(before.indices)))
    footer = len(section).to_bytes(8, "little") + raw[-8:]
    written = section + len(body).to_bytes(4, "little") + body + footer
    after = parse_version(written)
    assert not after.bases
    assert (len(after.fragments), len(after.indices)) == (len(before.fragments), len(before.indices))
    return written


def _manifest(raw: bytes, *, has_indices: bool) -> Iterator[bytes]:
    """The fields of the manifest; its index section lies at the beginning of the file."""
    for key, content, whole in raw_fields(raw):
        number = key >> 3
        if number == _FRAGMENTS:
            yield as_field(key, _fragment(content))
        elif number == _INDEX_SECTION:
            if has_indices:
                yield as_varint(key) + as_varint(0)
        elif number in (_READER_FLAGS, _WRITER_FLAGS):
            flags, _ = varint(whole, len(as_varint(key)))
            yield as_varint(key) + as_varint(flags & ~_MANY_BASES)
        elif number == _AUXILIARY:
            raise NotUnderstood("a version with auxiliary data")
        elif number not in (_BASE_PATHS, _BRANCH, _TRANSACTION_FILE, *_TRANSACTION_SECTIONS):
            yield whole


def _fragment(raw: bytes) -> bytes:
    def flat(number: int, content: bytes) -> bytes | None:
        return _without(content, _FILE_BASE) if number in (_FRAGMENT_FILES, _FRAGMENT_DELETION) else None

    return _changed(raw, flat)


def _without(raw: bytes, field: int) -> bytes:
    """A message without one of its fields."""
    return b"".join(whole for key, _, whole in raw_fields(raw) if key >> 3 != field)


def _changed(raw: bytes, change: Callable[[int, bytes], bytes | None]) -> bytes:
    parts = []
    for key, content, whole in raw_fields(raw):
        new = change(key >> 3, content)
        parts.append(whole if new is None else as_field(key, new))
    return b"".join(parts)
