"""Where the records of CSV begin and end, in bytes.

The grammar is that of RFC 4180, read as Python's csv module reads it:
- a quote opens a quoted value only as its first character; elsewhere in a value without quotes it is plain text
- within quotes two quotes mean one; the first single quote closes, and what follows up to the delimiter is plain text
- LF, CR LF and CR end a record, except within quotes or after the escape character
- the escape character makes the next byte plain text, within quotes and outside of them
- a line that begins with the comment character, outside of quotes, is no record, and its quotes mean nothing

Scanning: one pass of numpy finds quotes, line ends, escapes. If every second quote is at the beginning of a value, or
directly after a quote, quoted ranges are the pairs of quotes. Otherwise (a quote within plain text, a comment) a loop
over the quotes decides. Text without a quote needs neither.

The state at a line end that no escape character precedes is either "between records" or "within quotes". `Scan` is
therefore computed for a text that begins in one of these two states, and has the state in which it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from omnigraph.pipeline.csv.options import CsvFormat

_LF, _CR = 10, 13


@dataclass(frozen=True, eq=False)
class Scan:
    """The structure of a text that begins at a record, or within quotes. Positions are offsets in the text."""

    size: int
    line_ends: np.ndarray
    """The last byte of every line end, also within quotes."""
    record_ends: np.ndarray
    """Those of `line_ends` that end a record or a comment."""
    quoted: np.ndarray
    """(open, close) of every quoted range: the positions of its quotes; -1 if before the text, `size` if after it."""
    comments: np.ndarray
    """The first byte of every comment."""
    escaped: np.ndarray
    """Bytes that are plain text because of the escape character before them; `size` if the text ends with an escape."""

    @property
    def ends_in_quotes(self) -> bool:
        return len(self.quoted) > 0 and int(self.quoted[-1, 1]) == self.size

    @property
    def ends_in_escape(self) -> bool:
        return len(self.escaped) > 0 and int(self.escaped[-1]) == self.size

    @property
    def is_complete(self) -> bool:
        """Whether the last byte ends a record."""
        return self.size == 0 or (len(self.record_ends) > 0 and int(self.record_ends[-1]) == self.size - 1)

    @cached_property
    def starts(self) -> np.ndarray:
        """The first byte of every record, of comments and of blank lines too."""
        starts = np.concatenate([np.zeros(1, np.int64), self.record_ends + 1])
        return starts[starts < self.size]

    @cached_property
    def stops(self) -> np.ndarray:
        """Where every record stops, its line end included."""
        return np.append(self.starts[1:], self.size) if len(self.starts) else self.starts

    def until(self, stop: int) -> Scan:
        """The structure of the text up to `stop`, where a record ends."""
        return Scan(
            stop,
            self.line_ends[: np.searchsorted(self.line_ends, stop)],
            self.record_ends[: np.searchsorted(self.record_ends, stop)],
            self.quoted[: np.searchsorted(self.quoted[:, 0], stop)],
            self.comments[: np.searchsorted(self.comments, stop)],
            self.escaped[: np.searchsorted(self.escaped, stop)],
        )

    def lines(self, positions: np.ndarray) -> np.ndarray:
        """The lines of positions, from 1."""
        return np.searchsorted(self.line_ends, positions) + 1

    @property
    def line_count(self) -> int:
        is_ended = len(self.line_ends) > 0 and int(self.line_ends[-1]) == self.size - 1
        return len(self.line_ends) + int(self.size > 0 and not is_ended)

    def is_quoted(self, positions: np.ndarray) -> np.ndarray:
        """Which positions are within quotes."""
        if not len(self.quoted):
            return np.zeros(len(positions), dtype=bool)
        ranges = np.searchsorted(self.quoted[:, 0], positions, side="right") - 1
        return np.asarray((ranges >= 0) & (positions < self.quoted[np.maximum(ranges, 0), 1]))


def scan(text: bytes, format: CsvFormat, *, in_quotes: bool = False) -> Scan:
    """The structure of a text. `in_quotes`: the text begins within quotes instead of at a record."""
    data = np.frombuffer(text, dtype=np.uint8)
    line_ends = _line_ends(data, has_cr=b"\r" in text)
    escaped = _escaped(data, format.escape)
    no_positions = np.empty(0, np.int64)
    quotes = _without(_positions(data, text, format.quote), escaped)
    comments = _line_starts(data, _positions(data, text, format.comment))
    if in_quotes or len(quotes) or len(comments):
        quoted, comments, comment_ends = _ranges(data, format, quotes, comments, escaped, line_ends, in_quotes)
    else:
        quoted, comment_ends = np.empty((0, 2), np.int64), no_positions
    without_records = Scan(len(data), line_ends, no_positions, quoted, comments, escaped)
    record_ends = _without(line_ends, escaped)
    record_ends = record_ends[~without_records.is_quoted(record_ends)]
    if len(comment_ends):
        record_ends = np.union1d(record_ends, comment_ends)
    return Scan(len(data), line_ends, record_ends, quoted, comments, escaped)


def is_border(data: np.ndarray, offset: int, format: CsvFormat) -> bool:
    """Whether a line ends right before `offset`, so that a record ends there unless it is within quotes."""
    last = int(data[offset - 1])
    if last == _CR:
        if offset < len(data) and data[offset] == _LF:
            return False
    elif last != _LF:
        return False
    before = offset - 2 - int(last == _LF and offset >= 2 and data[offset - 2] == _CR)
    return format.escape is None or before < 0 or int(data[before]) != ord(format.escape)


def _positions(data: np.ndarray, text: bytes, character: str | None) -> np.ndarray:
    if character is None or character.encode() not in text:
        return np.empty(0, np.int64)
    return np.flatnonzero(data == ord(character))


def _line_ends(data: np.ndarray, *, has_cr: bool) -> np.ndarray:
    feeds = np.flatnonzero(data == _LF)
    if not has_cr:
        return feeds
    returns = np.flatnonzero(data == _CR)
    last = len(data) - 1
    alone = returns[(returns == last) | (data[np.minimum(returns + 1, last)] != _LF)]
    return np.union1d(feeds, alone) if len(alone) else feeds


def _escaped(data: np.ndarray, escape: str | None) -> np.ndarray:
    """The bytes after every second escape of a run, counted from its first."""
    escapes = np.empty(0, np.int64) if escape is None else np.flatnonzero(data == ord(escape))
    if not len(escapes):
        return escapes
    begins = np.concatenate([[True], np.diff(escapes) != 1])
    first = escapes[begins][np.cumsum(begins) - 1]
    return np.asarray(escapes[(escapes - first) % 2 == 0] + 1)


def _without(positions: np.ndarray, excluded: np.ndarray) -> np.ndarray:
    if not len(excluded) or not len(positions):
        return positions
    return np.asarray(positions[~np.isin(positions, excluded, assume_unique=True)])


def _line_starts(data: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The positions at the start of a line."""
    before = data[np.maximum(positions - 1, 0)]
    return np.asarray(positions[(positions == 0) | (before == _LF) | (before == _CR)])


def _opening(data: np.ndarray, format: CsvFormat, quotes: np.ndarray, escaped: np.ndarray) -> np.ndarray:
    """Which quotes are at the beginning of a value."""
    before = data[np.maximum(quotes - 1, 0)]
    at_start = (before == ord(format.delimiter)) | (before == _LF) | (before == _CR)
    if len(escaped):
        at_start &= ~np.isin(quotes - 1, escaped)
    return np.asarray(at_start | (quotes == 0))


def _ranges(
    data: np.ndarray,
    format: CsvFormat,
    quotes: np.ndarray,
    comments: np.ndarray,
    escaped: np.ndarray,
    line_ends: np.ndarray,
    in_quotes: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quoted ranges, the comments outside of them, and the line ends of these."""
    opening = _opening(data, format, quotes, escaped)
    behind = np.diff(quotes, prepend=-2) == 1
    no_positions = np.empty(0, np.int64)
    if not len(comments) and (opening | behind)[int(in_quotes) :: 2].all():
        borders = np.concatenate([np.full(int(in_quotes), -1, np.int64), quotes])
        if len(borders) % 2:
            borders = np.append(borders, len(data))
        return borders.reshape(-1, 2), no_positions, no_positions
    walk = _Walk(data, quotes, opening, behind, comments, escaped, line_ends)
    return walk.run(in_quotes)


class _Walk:
    """The loop over quotes and comments, in the order of the text."""

    def __init__(
        self,
        data: np.ndarray,
        quotes: np.ndarray,
        opening: np.ndarray,
        behind: np.ndarray,
        comments: np.ndarray,
        escaped: np.ndarray,
        line_ends: np.ndarray,
    ) -> None:
        self._size = len(data)
        self._quotes = quotes.tolist()
        self._opening = opening.tolist()
        self._behind = behind.tolist()
        self._comments = comments
        self._escaped = set(escaped.tolist()) if len(comments) else set()
        self._line_ends = line_ends

    def run(self, in_quotes: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        quoted: list[tuple[int, int]] = []
        comments: list[int] = []
        comment_ends: list[int] = []
        i, offset = 0, 0  # the next quote; the first byte that is not decided yet
        fresh = 0  # a comment ended before this byte: a record begins here whatever the byte before it is
        has_comments = len(self._comments) > 0
        if in_quotes:
            i, close = self._closed(0)
            quoted.append((-1, close))
            offset, fresh = close + 1, -1
        while offset < self._size:
            i = self._next_opening(i, offset, fresh)
            quote = self._quotes[i] if i < len(self._quotes) else self._size
            comment = self._next_comment(offset, quote, fresh) if has_comments else None
            if comment is not None:
                stop = self._line_end(comment)
                comments.append(comment)
                comment_ends += [stop] if stop < self._size else []
                offset = fresh = stop + 1
                continue
            if i >= len(self._quotes):
                break
            i, close = self._closed(i + 1)
            quoted.append((quote, close))
            offset = close + 1
        return (
            np.array(quoted, np.int64).reshape(-1, 2),
            np.array(comments, np.int64),
            np.array(comment_ends, np.int64),
        )

    def _line_end(self, offset: int) -> int:
        end = int(np.searchsorted(self._line_ends, offset))
        return int(self._line_ends[end]) if end < len(self._line_ends) else self._size

    def _next_opening(self, i: int, offset: int, fresh: int) -> int:
        quotes, opening, count = self._quotes, self._opening, len(self._quotes)
        while i < count and not ((opening[i] and quotes[i] >= offset) or (quotes[i] == fresh and fresh >= offset)):
            i += 1
        return i

    def _closed(self, i: int) -> tuple[int, int]:
        """The closing quote: the first from `i` on that is not doubled. Returns the next index, and its position."""
        count = len(self._quotes)
        while i < count:
            if i + 1 < count and self._behind[i + 1]:
                i += 2
                continue
            return i + 1, self._quotes[i]
        return i, self._size

    def _next_comment(self, offset: int, before: int, fresh: int) -> int | None:
        """The first comment from `offset` on that begins before the next quoted range."""
        first = int(np.searchsorted(self._comments, offset))
        for comment in self._comments[first : int(np.searchsorted(self._comments, before))].tolist():
            if comment == fresh or comment - 1 not in self._escaped:
                return int(comment)
        return None
