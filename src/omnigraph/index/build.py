"""Build index segments over some fragments of one exact version, without committing them.

Vector segments share the centroids of their index, which are trained once on a sample, so that segments built by
different workers at different times belong to one index. Building a segment twice leaves orphan files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.indices import new_segment_json, sync_segment
from omnigraph.storage.lance.tables import name_of
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin

if TYPE_CHECKING:
    from lance import LanceDataset

METRIC = "cosine"
VECTORS_MIN = 256
"""With fewer vectors a full scan is as fast; the index is pending."""
FLAT_MAX = 1_000_000
"""Up to this many vectors are stored unchanged (IVF_FLAT); more are stored in eight bits per dimension (IVF_SQ)."""
LANCE_OWN = "flat"
"""The name of Lance's own column in an IVF_FLAT index: building one over a column of this name panics."""
PARTITION_ROWS = 4096
RETRAIN_GROWTH = 4
"""A vector index is trained again when it needs this many times more partitions than it has."""
SAMPLES_PER_PARTITION = 256


def vector_kind(vectors: int, column: str) -> str:
    return "IVF_FLAT" if vectors <= FLAT_MAX and column != LANCE_OWN else "IVF_SQ"


def partitions(vectors: int) -> int:
    return max(1, min(16_384, vectors // PARTITION_ROWS))


def trained_partitions(table: LanceDataset, name: str) -> int:
    """How many partitions an existing vector index has."""
    return len(centroids_of(table, name))


def shares_centroids(kind: str) -> bool:
    """Whether segments of this kind are built with shared centroids; other kinds train their own."""
    return kind in ("IVF_FLAT", "IVF_SQ")


def outgrown(trained: int, rows: int) -> bool:
    return partitions(rows) >= RETRAIN_GROWTH * trained


def made_with(kind: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an existing index. New segments need the same ones, or one index would use two metrics, or fail.
    Empty for kinds without options.
    """
    if kind == "INVERTED":
        return {name: value for name, value in details.items() if value is not None}
    if "metric_type" not in details:
        return {}
    options: dict[str, Any] = {"metric": str(details["metric_type"]).lower()}
    quantised, graph = details.get("compression") or {}, details.get("hnsw") or {}
    if quantised.get("type") == "pq":
        options |= {"num_sub_vectors": quantised["num_sub_vectors"], "num_bits": quantised["num_bits"]}
    if graph:
        options |= {"m": graph["max_connections"], "ef_construction": graph["construction_ef"]}
    return options


def train(table: LanceDataset, column: str, *, vectors: int, metric: str = METRIC) -> np.ndarray:
    """Centroids for a vector index, from a sample of the column.

    Lance samples rows and skips those whose vector has no direction (null, zero or not finite). If too few are left,
    the sample is taken from vectors with a direction only.
    """
    from lance.indices import IndicesBuilder

    count = partitions(vectors)
    rate = max(2, min(SAMPLES_PER_PARTITION, vectors // count))
    with lance_api.reading(f"training an index of {table.uri}"):
        builder = IndicesBuilder(table, column)
        try:
            model = builder.train_ivf(num_partitions=count, distance_type=metric, sample_rate=rate)
        except RuntimeError as error:
            if "KMeans cannot train" not in str(error):
                raise
            return _trained_on_directed(table, column, partitions_max=count, metric=metric)
    return _matrix(model.centroids)


def _trained_on_directed(table: LanceDataset, column: str, *, partitions_max: int, metric: str) -> np.ndarray:
    from lance.util import KMeans

    batches = [*_directed(table, column, count_max=partitions_max * SAMPLES_PER_PARTITION)]
    if not batches:
        raise ValueError("none of its vectors has a direction")
    sample = np.concatenate(batches)
    if metric == "cosine":  # equivalent to Euclidean distance of unit vectors
        sample /= np.linalg.norm(sample.astype(np.float64), axis=1, keepdims=True).astype(np.float32)
    model = KMeans(max(1, min(partitions_max, len(sample) // SAMPLES_PER_PARTITION)))
    model.fit(sample)
    return _matrix(model.centroids.storage)


def directed_vectors(table: LanceDataset, column: str, *, count_max: int) -> int:
    """How many vectors have a direction: they are neither null nor zero, and their numbers are finite. Stops counting
    at `count_max`.
    """
    with lance_api.reading(f"looking at vectors of {table.uri}"):
        return sum(len(batch) for batch in _directed(table, column, count_max=count_max))


def _directed(table: LanceDataset, column: str, *, count_max: int) -> Iterator[np.ndarray]:
    """The first vectors of the table that have a direction, as rows of 32-bit floats."""
    remaining = count_max
    for batch in table.scanner(columns=[column], filter=f"{name_of(column)} IS NOT NULL").to_batches():
        vectors = _matrix(batch.column(0)) if batch.num_rows else np.empty((0, 1), dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            length = np.linalg.norm(vectors.astype(np.float64), axis=1)
        directed = vectors[np.isfinite(length) & (length > 0)][:remaining]
        remaining -= len(directed)
        if len(directed):
            yield directed
        if not remaining:
            return


def centroids_of(table: LanceDataset, name: str) -> np.ndarray:
    """The centroids of an existing vector index."""
    with lance_api.reading(f"reading the index {name} of {table.uri}"):
        return _matrix(table.get_ivf_model(name).centroids)


def _matrix(centroids: Any) -> np.ndarray:
    flat = centroids.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, dtype=np.float32).reshape(-1, centroids.type.list_size)


def build_segment(
    location: Location,
    pin: Pin,
    table: LanceDataset,
    *,
    column: str,
    kind: str,
    name: str,
    fragments: Sequence[int],
    centroids: np.ndarray | None = None,
    partitions: int | None = None,
    made_with: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One segment over these fragments, as a JSON value: its files are written, checked and synced.

    `made_with` are the options of its index, if that exists.
    """
    with lance_api.reading(f"building {name} of {pin.path}"):
        segment = table.create_index_uncommitted(
            column,
            kind,
            name=name,
            replace=True,
            fragment_ids=list(fragments),
            **(_options(table, column, kind, centroids, partitions) | dict(made_with or {})),
        )
        if kind == "INVERTED":
            # Without this step the segment commits, and every text query fails.
            segment = table.merge_existing_index_segments([segment])
    body = new_segment_json(segment)
    if set(body["fragments"]) != set(fragments):
        raise ValueError(f"{kind} could not be trained on so few rows")
    sync_segment(location, pin, body)
    return body


def _options(
    table: LanceDataset, column: str, kind: str, centroids: np.ndarray | None, partitions: int | None
) -> dict[str, Any]:
    if kind == "INVERTED":
        return {"with_position": True}
    if centroids is not None:
        import pyarrow as pa

        shared = pa.FixedSizeListArray.from_arrays(pa.array(centroids.ravel()), centroids.shape[1])
        return {"metric": METRIC, "ivf_centroids": shared, "num_partitions": len(centroids)}
    if partitions is None:
        return {}
    dimension = table.schema.field(column).type.list_size
    parts = max(n for n in range(1, max(2, dimension // 8 + 1)) if dimension % n == 0)
    quantised = {"num_sub_vectors": parts} if kind.endswith("PQ") else {}
    return {"metric": METRIC, "num_partitions": partitions, **quantised}
