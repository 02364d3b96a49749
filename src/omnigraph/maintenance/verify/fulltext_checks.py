"""Full-text checks: which rows an INVERTED index returns for a word, compared with the stored texts.

The tokenizer decides how a text is split into words (case, stems, stop words), so the expected answer comes from Lance
as well: candidate rows are put into a small table in memory with a new index of the same settings, which returns those
that hold the word. Candidates are the rows that the index returns and those whose text contains the word literally.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from omnigraph.maintenance.verify.findings import Finding
from omnigraph.maintenance.verify.rows import named_rows
from omnigraph.maintenance.verify.scope import Line
from omnigraph.maintenance.verify.tables import line_finding
from omnigraph.storage.lance.memory_tables import memory_index
from omnigraph.storage.lance.tables import name_of
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.table import quote

SAMPLE_WORDS = 6
BATCH_WORDS = 64
ROWS_MAX = 20_000
"""A word that more rows hold says little about any of them, and costs much."""
_WORD = re.compile(r"[A-Za-z0-9]{3,30}")
_SETTINGS = (
    *("base_tokenizer", "language", "with_position", "max_token_length", "lower_case", "stem", "remove_stop_words"),
    *("ascii_folding", "min_ngram_length", "max_ngram_length", "prefix_only"),
)


def check_words(
    location: Location, line: Line, table: Any, task: Mapping[str, Any], *, named: str
) -> Iterator[Finding | int]:
    comparison = _WordComparison(location, line, table, task["index"], named)
    compared_words: set[str] = set()
    for words in _questions(table, task["index"]["column"], task):
        new = [word for word in words if word not in compared_words]
        compared_words.update(new)
        for start in range(0, len(new), BATCH_WORDS):
            yield from comparison.compare(new[start : start + BATCH_WORDS])
    if not compared_words:
        yield from comparison.open()


def _questions(table: Any, column: str, task: Mapping[str, Any]) -> Iterator[list[str]]:
    where = f"{name_of(column)} IS NOT NULL"
    if task["full"]:
        for batch in table.scanner(columns=[column], filter=where).to_batches():
            yield sorted({w.lower() for text in batch.column(column).to_pylist() for w in _WORD.findall(text)})
        return
    chance = random.Random(task["seed"])
    fragments = table.get_fragments()
    sampled: list[str] = []
    for fragment in chance.sample(fragments, min(len(fragments), SAMPLE_WORDS)):
        rows = table.scanner(columns=[column], filter=where, fragments=[fragment], limit=4).to_table()
        words = sorted({w.lower() for text in rows.column(column).to_pylist() for w in _WORD.findall(text)})
        sampled += chance.sample(words, min(len(words), 2))
    yield sampled


class _WordComparison:
    """Queries one index for words."""

    def __init__(self, location: Location, line: Line, table: Any, index: Mapping[str, Any], named: str) -> None:
        self._location = location
        self._line = line
        self._table = table
        self._column: str = index["column"]
        self._named = named
        self._settings = next(d.details for d in table.describe_indices() if d.name == index["name"]) or {}

    def open(self) -> Iterator[int]:
        """Texts without a usable word show nothing about answers; but the index must be readable."""
        self._by_index(self._table, self._column, "omnigraph")
        yield 1

    def compare(self, words: Sequence[str]) -> Iterator[Finding | int]:
        answers = {word: self._by_index(self._table, self._column, word) for word in words}
        rare = {word: rows for word, rows in answers.items() if rows.num_rows <= ROWS_MAX}
        texts = self._written(list(rare)) if rare else None
        if texts is None:
            if len(words) > 1:  # together they are in too many rows
                for word in words:
                    yield from self.compare([word])
            return
        texts = _once(pa.concat_tables([texts, *(rows.select(texts.column_names) for rows in rare.values())]))
        if texts.num_rows == 0:
            return
        fresh_index = self._fresh(texts)
        for word, rows in rare.items():
            yield 1
            right = set(self._by_index(fresh_index, "text", word).column("row").to_pylist())
            yield from self._compare(word, rows.column("_rowid").to_pylist(), right)

    def _by_index(self, table: Any, column: str, word: str) -> pa.Table:
        from lance.query import MatchQuery

        columns = ["row", "_score"] if column != self._column or table is not self._table else [column, "_score"]
        query = MatchQuery(word, column)
        # No limit for the fresh index: it has the rows of many words, and a word may be in more of them than the limit.
        limit = ROWS_MAX + 1 if table is self._table else None
        return table.scanner(columns=columns, full_text_query=query, with_row_id=True, limit=limit).to_table()

    def _written(self, words: Sequence[str]) -> pa.Table | None:
        """Rows whose text contains one of the words literally, by a scan; None if they are too many."""
        name = f"lower({name_of(self._column)})"
        where = " OR ".join(f"contains({name}, {quote(word)})" for word in words)
        scanner = self._table.scanner(
            columns=[self._column], filter=where, with_row_id=True, limit=ROWS_MAX + 1, use_scalar_index=False
        )
        rows = scanner.to_table()
        return None if rows.num_rows > ROWS_MAX else rows

    def _fresh(self, rows: pa.Table) -> Any:
        """An index with the same settings, built from the current texts; `row` is the row's id."""
        kept = {name: self._settings[name] for name in _SETTINGS if self._settings.get(name) is not None}
        texts = pa.table({"row": rows.column("_rowid"), "text": rows.column(self._column)})
        return memory_index(texts, "text", "INVERTED", **kept)

    def _compare(self, word: str, row_ids: list[int], right: set[int]) -> Iterator[Finding]:
        for code, rows, text in (
            ("index_stale", set(row_ids) - right, "finds rows by words that they do not hold"),
            ("index_wrong_answer", right - set(row_ids), "does not find rows that hold a word"),
        ):
            if rows:
                named = named_rows(self._location, self._line, sorted(rows)[:3], ("id",))
                examples = [f"{word}: {name}" for name in named]
                yield line_finding(code, self._line, f"{self._named} {text}", count=len(rows), examples=examples)
        doubled = len(row_ids) - len(set(row_ids))
        if doubled:
            text = f"{self._named} returns rows more than once"
            yield line_finding("index_stale", self._line, text, count=doubled, examples=[word])


def _once(rows: pa.Table) -> pa.Table:
    """Each row once, by its id."""
    first = {row: position for position, row in reversed(list(enumerate(rows.column("_rowid").to_pylist())))}
    return rows.take(pa.array(sorted(first.values()), pa.int64()))
