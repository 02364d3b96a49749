"""Blocks of lines, and the groups of lines in a block that start alike.

A file is cut into blocks that end with a line feed. The lines of a block are one Arrow array over its bytes, not
copied. Groups are found without looking at each line in Python: the first line that is left names a prefix, and all
lines with that prefix leave together. A file written by one program has a prefix or two per type. Lines that do not
start with their type, and what is left past the limit, are parsed one by one to learn it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.write.envelope.forms import PREFIX_PATTERN, Prefix, prefix_of

BLOCK_BYTES = 4 << 20
GROUPS_MAX = 512

_BLANK = b" \t\r\n"
_LINE_FEED = b"\n"[0]


@dataclass(frozen=True, eq=False)
class Block:
    """Whole lines, each with its line feed, and the byte of the input at which they start."""

    text: bytes
    offset: int


@dataclass(frozen=True, eq=False)
class Group:
    """Lines with their places in the block, each with its line feed; without a prefix, only the judge can read them."""

    lines: pa.Array
    places: np.ndarray
    prefix: Prefix | None


def blocks(chunks: Iterable[bytes], *, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Cut any chunks of a file anew, at line feeds. A last line without one gets it.

    A line of any length becomes one block: who brings the chunks limits it.
    """
    offset = 0
    parts: list[bytes] = []
    size = 0
    for piece in _pieces(chunks, block_bytes):
        stop = piece.rfind(b"\n") + 1 if size + len(piece) >= block_bytes else 0
        if stop == 0:
            parts.append(piece)
            size += len(piece)
            continue
        yield Block(b"".join([*parts, memoryview(piece)[:stop]]), offset)
        offset += size + stop
        parts = [piece[stop:]]
        size = len(piece) - stop
    rest = b"".join(parts)
    if rest:
        yield Block(rest if rest.endswith(b"\n") else rest + b"\n", offset)


def _pieces(chunks: Iterable[bytes], size_max: int) -> Iterator[bytes]:
    for chunk in chunks:
        if isinstance(chunk, bytes) and len(chunk) <= size_max:
            yield chunk
            continue
        view = memoryview(chunk).cast("B")
        for start in range(0, len(view), size_max):
            yield bytes(view[start : start + size_max])


def lines_of(block: Block) -> pa.Array:
    """The lines as one array over the block's bytes."""
    ends = np.flatnonzero(np.frombuffer(block.text, dtype=np.uint8) == _LINE_FEED)
    offsets = np.zeros(len(ends) + 1, dtype=np.int32)
    offsets[1:] = ends + 1
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block.text)]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


def is_blank(text: bytes) -> bool:
    """Whether a text, which is not empty, has no line but blank ones."""
    # Counting is four times as fast as stripping, and line feeds alone are what a packed file can have billions of.
    return text[0] in _BLANK and (text.count(b"\n") == len(text) or not text.strip(_BLANK))


def groups(lines: pa.Array) -> Iterator[Group]:
    """All lines of a block but the blank ones, in groups that are read in one way."""
    # Most blank lines are a line feed and nothing else; a packed file can hold billions of them.
    is_open = np.asarray(pc.binary_length(lines)) > 1
    for _ in range(GROUPS_MAX):
        first = int(np.argmax(is_open)) if len(lines) else 0
        if len(lines) == 0 or not is_open[first]:
            return
        prefix = prefix_of(lines[first].as_py())
        if prefix is not None:
            alike = is_open & np.asarray(pc.starts_with(lines, prefix.text))
        else:
            alike = is_open & ~np.asarray(pc.match_substring_regex(lines, PREFIX_PATTERN))
            alike[first] = True
        group = lines if alike.all() else lines.filter(pa.array(alike))
        is_open &= ~alike
        if prefix is None:
            yield from _parsed_groups(group, np.flatnonzero(alike))
        else:
            yield Group(group, np.flatnonzero(alike), prefix)
    yield from _parsed_groups(lines.filter(pa.array(is_open)), np.flatnonzero(is_open))


def _parsed_groups(lines: pa.Array, places: np.ndarray) -> Iterator[Group]:
    """Lines whose type does not stand in front: parsed once to learn it, nothing more; blank ones are dropped."""
    found: dict[tuple[str, str] | None, list[int]] = {}
    for i, line in enumerate(lines.to_pylist()):
        if line.strip(_BLANK):
            found.setdefault(_type_named(line), []).append(i)
    for named, positions in found.items():
        prefix = None if named is None else Prefix(text=b"", kind=named[0], name=named[1], comma_at=None, data_at=None)
        yield Group(lines.take(pa.array(positions)), places[positions], prefix)


def _type_named(line: bytes) -> tuple[str, str] | None:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict) or ("type" in value) == ("edge" in value):
        return None
    kind = "type" if "type" in value else "edge"
    return (kind, value[kind]) if isinstance(value[kind], str) else None
