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

from omnigraph.write.envelope.typed import PREFIX_PATTERN, Prefix, prefix_of

BLOCK_BYTES = 1 << 20
GROUPS_MAX = 512

_BLANK = b" \t\r\n"
_LINE_FEED = b"\n"[0]


@dataclass(frozen=True, eq=False)
class Block:
    """`text` ends with a line feed. `first_line` counts from 1."""

    text: bytes
    first_line: int
    line_count: int


@dataclass(frozen=True, eq=False)
class Group:
    """Lines with their numbers, each with its line feed; without a prefix, only the judge can read them."""

    lines: pa.Array
    numbers: np.ndarray
    prefix: Prefix | None


def blocks(chunks: Iterable[bytes], *, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Cut any chunks of a file anew, at line feeds. A last line without one gets it."""
    line = 1
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        parts.append(bytes(chunk))
        size += len(chunk)
        if size < block_bytes or b"\n" not in chunk:
            continue
        text = b"".join(parts)
        start = 0
        while len(text) - start >= block_bytes:
            stop = text.rfind(b"\n", start, start + block_bytes) + 1 or text.find(b"\n", start + block_bytes) + 1
            if stop == 0:
                break
            block = _block(text[start:stop] if stop - start < len(text) else text, line)
            yield block
            line += block.line_count
            start = stop
        parts = [text[start:]]
        size = len(parts[0])
    rest = b"".join(parts)
    if rest:
        yield _block(rest if rest.endswith(b"\n") else rest + b"\n", line)


def _block(text: bytes, first_line: int) -> Block:
    return Block(text, first_line, text.count(b"\n"))


def groups(block: Block) -> Iterator[Group]:
    """All lines of the block but the blank ones, in groups that are read in one way."""
    lines = _lines(block)
    numbers = np.arange(block.first_line, block.first_line + block.line_count, dtype=np.int64)
    for _ in range(GROUPS_MAX):
        if len(lines) == 0:
            return
        prefix = prefix_of(lines[0].as_py())
        if prefix is not None:
            alike = np.asarray(pc.starts_with(lines, prefix.text))
        else:
            alike = ~np.asarray(pc.match_substring_regex(lines, PREFIX_PATTERN))
            alike[0] = True
        if alike.all():
            group, lines = lines, lines.slice(0, 0)
        else:
            group, lines = lines.filter(pa.array(alike)), lines.filter(pa.array(~alike))
        if prefix is None:
            yield from _parsed_groups(group, numbers[alike])
        else:
            yield Group(group, numbers[alike], prefix)
        numbers = numbers[~alike]
    yield from _parsed_groups(lines, numbers)


def _lines(block: Block) -> pa.Array:
    ends = np.flatnonzero(np.frombuffer(block.text, dtype=np.uint8) == _LINE_FEED)
    offsets = np.zeros(len(ends) + 1, dtype=np.int32)
    offsets[1:] = ends + 1
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block.text)]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


def _parsed_groups(lines: pa.Array, numbers: np.ndarray) -> Iterator[Group]:
    """Lines whose type does not stand in front: parsed once to learn it, nothing more; blank ones are dropped."""
    found: dict[tuple[str, str] | None, list[int]] = {}
    for i, line in enumerate(lines.to_pylist()):
        if line.strip(_BLANK):
            found.setdefault(_type_named(line), []).append(i)
    for named, positions in found.items():
        prefix = None if named is None else Prefix(text=b"", kind=named[0], name=named[1], comma_at=None, data_at=None)
        yield Group(lines.take(pa.array(positions)), numbers[positions], prefix)


def _type_named(line: bytes) -> tuple[str, str] | None:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict) or ("type" in value) == ("edge" in value):
        return None
    kind = "type" if "type" in value else "edge"
    return (kind, value[kind]) if isinstance(value[kind], str) else None
