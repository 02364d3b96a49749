"""Blocks of lines, and the groups of lines in a block that start alike.

A file is cut into blocks that end with a line feed. The lines of a block are one Arrow array over its bytes, not
copied. Groups are found without looking at each line in Python: the first line that is left names a prefix, and all
lines with that prefix leave together. A file written by one program has a prefix or two per type; past the limit, what
is left goes to the judge line by line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.write.envelope.typed import Prefix, prefix_of

BLOCK_BYTES = 1 << 20
GROUPS_MAX = 512

_BLANK = b" \t\r\n"


@dataclass(frozen=True, eq=False)
class Block:
    """`text` ends with a line feed. `first_line` counts from 1."""

    text: bytes
    first_line: int
    line_count: int


@dataclass(frozen=True, eq=False)
class Group:
    """Lines with their numbers; without a prefix they are lines that only the judge can read."""

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
    lines = _lines(block)
    numbers = np.arange(block.first_line, block.first_line + block.line_count, dtype=np.int64)
    for _ in range(GROUPS_MAX):
        if len(lines) == 0:
            return
        first = lines[0].as_py()
        if not first.strip(_BLANK):
            alike = np.asarray(pc.less_equal(pc.binary_length(lines), len(first)))
            alike = _only_blank(lines, alike)
            prefix = None
        else:
            prefix = prefix_of(first)
            alike = np.asarray(pc.starts_with(lines, prefix.text)) if prefix is not None else _first_only(len(lines))
        if alike.all():
            group, lines = lines, lines.slice(0, 0)
        else:
            group, lines = lines.filter(pa.array(alike)), lines.filter(pa.array(~alike))
        if first.strip(_BLANK):
            yield Group(group, numbers[alike], prefix)
        numbers = numbers[~alike]
    yield Group(lines, numbers, None)
