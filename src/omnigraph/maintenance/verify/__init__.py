"""Verify: is everything that the graph rests on there, and does it agree with itself? Nothing is written to the graph.

1. snapshot  one version of the manifest; its heads, and the table versions that they and the bases of branches pin
2. manifest  rows, records, heads and schemas hang together (history.py)
3. tables    per table, by one listing: versions open, files are there with their sizes, indices cover, no strays
             (files.py); with `quick` nothing more is read
4. rows      as many as are recorded, ids and @unique values once, endpoints there, edges per node as declared (rows.py)
5. indices   answers against a full scan: a sample, or with `full` all (indices.py, vectors.py, words.py, addresses.py)
6. blobs     the bytes are there (blobs.py); with `full` every rule of every row (rules.py)
7. around    tickets of dead writers, commits that are lost, tables that moved without the door, folders that no commit
             knows (around.py)
8. settle    what was found broken and replaced by a living writer meanwhile is looked at again, where it is pinned now
             (settle.py)

Steps 3 to 6 are tasks on the runner; 4 hands digests on through files of a scratch place: a temporary folder of this
machine, or, where workers are elsewhere, `__staging` of the graph's store, which is no part of the graph and is removed
at the end.

Keeps: the graph. Beside live writers and cleanup it is right: it works on one snapshot, and asks the newest heads
before it calls something missing that others may have removed. Whatever can't be read is a finding of its table, or of
the manifest, and the rest is checked. A crash leaves at most a folder of scratch files.
"""

from omnigraph.maintenance.verify.findings import CODES, Finding, VerifyResult
from omnigraph.maintenance.verify.run import VerifyOptions, verify

__all__ = ["CODES", "Finding", "VerifyOptions", "VerifyResult", "verify"]
