"""Verify: check that everything the graph needs exists and is consistent. Nothing is written to the graph.

1. snapshot  one version of the manifest; its heads, and the table versions that they and the bases of branches pin
2. manifest  rows, records, heads and schemas are consistent (history.py)
3. tables    per table, by one listing: versions open, files exist with their sizes, indices cover, no orphan
             files (files.py); with `quick` nothing more is read
4. rows      as many as recorded, ids and @unique values once, endpoints exist, edges per node as declared (rows.py)
5. indices   answers against a full scan: a sample, or with `full` all (indices.py, vectors.py, fulltext_checks.py,
             addresses.py)
6. blobs     the bytes exist (blobs.py); with `full` every rule of every row (rules.py)
7. strays    locks of crashed writers, lost commits, drift, folders that no commit names (stray_checks.py)
8. recheck   what was found broken and replaced by a live writer meanwhile is checked again, where it is pinned now
             (recheck.py)

Steps 3 to 6 are tasks on the runner; 4 passes digests in files of a scratch folder: a temporary folder of this
machine or, if workers are elsewhere, `__staging` of the graph's store, which is no part of the graph and is removed
at the end.

Keeps: the graph. It is correct beside live writers and cleanup: it works on one snapshot, and reads the newest heads
before it reports something as missing that others may have removed. What can't be read is a finding of its table, or
of the manifest, and the rest is checked. A crash leaves at most a folder of scratch files.
"""

from omnigraph.maintenance.verify.findings import CODES, Finding, VerifyResult
from omnigraph.maintenance.verify.run import VerifyOptions, verify

__all__ = ["CODES", "Finding", "VerifyOptions", "VerifyResult", "verify"]
