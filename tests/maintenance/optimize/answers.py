"""Every index of a table asked for everything it can answer, against a full scan of the same version."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa


def disagreements(table: Any) -> list[str]:
    """What an index answers otherwise than a scan does; empty if all agree."""
    found: list[str] = []
    for index in table.describe_indices():
        if not index.field_names:
            continue  # the fragment-reuse index, which answers no question
        column = index.field_names[0]
        kind = index.index_type
        if kind in ("BTree", "Bitmap"):
            found += _scalar(table, column, kind)
        elif kind == "LabelList":
            found += _labels(table, column)
        elif kind == "Inverted":
            found += _words(table, column)
        elif kind in ("IVF_FLAT", "IVF_SQ"):
            found += _nearest(table, column)
        elif kind.startswith("IVF"):
            found += _approximate(table, column)
    return found


def _ids(rows: pa.Table) -> Counter[str]:
    return Counter(rows["id"].to_pylist())


def _literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f"timestamp '{value:%Y-%m-%d %H:%M:%S}'"
    if isinstance(value, date):
        return f"date '{value.isoformat()}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def _ask(table: Any, where: str) -> Counter[str]:
    return _ids(table.to_table(columns=["id"], filter=where))


def _scalar(table: Any, column: str, kind: str) -> list[str]:
    rows = table.to_table(columns=sorted({"id", column}))
    by_value: dict[Any, Counter[str]] = {}
    for key, value in zip(rows["id"].to_pylist(), rows[column].to_pylist(), strict=True):
        by_value.setdefault(value, Counter())[key] += 1
    found = []
    values = sorted(v for v in by_value if v is not None)
    for value in values[:: max(1, len(values) // 40)]:
        got = _ask(table, f"`{column}` = {_literal(value)}")
        if got != by_value[value]:
            found.append(
                f"{kind} {column} = {value!r}: {got - by_value[value]} too many, {by_value[value] - got} missing"
            )
    if values and kind == "BTree":
        low = values[len(values) // 2]
        want: Counter[str] = Counter()
        for value in values[len(values) // 2 :]:
            want.update(by_value[value])
        got = _ask(table, f"`{column}` >= {_literal(low)}")
        if got != want:
            found.append(f"{kind} {column} >= {low!r}: {got - want} too many, {want - got} missing")
    return found


def _labels(table: Any, column: str) -> list[str]:
    rows = table.to_table(columns=["id", column])
    by_label: dict[str, Counter[str]] = {}
    for key, labels in zip(rows["id"].to_pylist(), rows[column].to_pylist(), strict=True):
        for label in set(labels or ()):
            by_label.setdefault(label, Counter())[key] += 1
    found = []
    for label, want in by_label.items():
        got = _ask(table, f"array_has(`{column}`, {_literal(label)})")
        if got != want:
            found.append(f"LabelList {column} has {label!r}: {got - want} too many, {want - got} missing")
    return found


def _words(table: Any, column: str) -> list[str]:
    from lance.query import MatchQuery

    rows = table.to_table(columns=["id", column])
    by_word: dict[str, Counter[str]] = {}
    for key, text in zip(rows["id"].to_pylist(), rows[column].to_pylist(), strict=True):
        for word in set((text or "").split()):
            by_word.setdefault(word, Counter())[key] += 1
    found = []
    words = sorted(by_word)
    for word in words[:: max(1, len(words) // 25)]:
        got = _ids(table.scanner(columns=["id"], full_text_query=MatchQuery(word, column), limit=100_000).to_table())
        if got != by_word[word]:
            found.append(f"Inverted {column} {word!r}: {got - by_word[word]} too many, {by_word[word] - got} missing")
    return found


def _nearest(table: Any, column: str) -> list[str]:
    rows = table.to_table(columns=["id", column])
    vectors = {k: v for k, v in zip(rows["id"].to_pylist(), rows[column].to_pylist(), strict=True) if v is not None}
    if not vectors:
        return []
    keys = sorted(vectors)
    found = []
    for key in keys[:: max(1, len(keys) // 3)]:
        query = np.asarray(vectors[key], dtype=np.float32)
        got = table.scanner(
            columns=["id", "_distance"],
            nearest={"column": column, "q": query, "k": len(keys), "nprobes": 10_000, "metric": "cosine"},
        ).to_table()
        if _ids(got) != Counter(keys):
            missing, more = Counter(keys) - _ids(got), _ids(got) - Counter(keys)
            found.append(f"IVF {column} near {key}: {more} too many, {missing} missing")
            continue
        matrix = np.asarray([vectors[k] for k in keys], dtype=np.float64)
        near = 1 - matrix @ query / (np.linalg.norm(matrix, axis=1) * np.linalg.norm(query))
        exact = dict(zip(keys, near, strict=True))
        wrong = [
            k
            for k, d in zip(got["id"].to_pylist(), got["_distance"].to_pylist(), strict=True)
            if abs(d - exact[k]) > 1e-3
        ]
        if wrong:
            found.append(f"IVF {column} near {key}: wrong distances of {wrong[:5]}")
    return found


def _approximate(table: Any, column: str) -> list[str]:
    """Indices that only come near: no ghost, no row twice, as many rows as were asked for. Once they are asked for all,
    as a lost row shows only then.
    """
    rows = table.to_table(columns=["id", column])
    vectors = {k: v for k, v in zip(rows["id"].to_pylist(), rows[column].to_pylist(), strict=True) if v is not None}
    keys = sorted(vectors)
    found = []
    for key in keys[:: max(1, len(keys) // 3)]:
        query = np.asarray(vectors[key], dtype=np.float32)
        for k in {min(10, len(keys)), len(keys)} if key == keys[0] else {min(10, len(keys))}:
            # The walk through an HNSW graph keeps `ef` candidates: with room for every row it comes to every row.
            effort = {"nprobes": 10_000, "ef": max(500, 4 * k)}
            near = {"column": column, "q": query, "k": k, "metric": "cosine", **effort}
            got = _ids(table.scanner(columns=["id", "_distance"], nearest=near).to_table())
            if sum(got.values()) != k or max(got.values(), default=0) > 1 or not set(got) <= set(keys):
                missing = sorted(set(keys) - set(got))[:5] if k == len(keys) else []
                found.append(f"IVF {column} near {key}: {sum(got.values())} of {k}, missing {missing}")
    return found
