"""Which versions two lines of one table have in common.

A table folder holds several lines: the root's own versions, and those of every fork. Lance records for a fork where it
left its parent, and where the parent left its own, in `_refs/branches/<fork>.json`. That record never changes.

Versions up to the shared version are the same on both lines. Above it a version number, and a row id that was assigned
there, mean different things on different lines.
"""

from __future__ import annotations

import json

from omnigraph.language import identifiers as form
from omnigraph.storage.diff.deletion_vectors import read_graph_file
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin

ForkPoints = tuple[tuple[int, str], ...]
"""Of every fork between the root and a line, outermost first: the version where it left its parent, its unique id."""


def read_fork_points(location: Location, pin: Pin) -> ForkPoints | None:
    """None if the fork's record is gone: the fork is being removed."""
    if pin.fork is None:
        return ()
    path = f"{pin.root}/_refs/branches/{pin.fork}.json"
    try:
        raw = read_graph_file(location, path)
    except FileNotFoundError:
        return None
    with form.reading(path):
        identifier = form.mapping(form.mapping(json.loads(raw))["identifier"])
        pairs = form.sequence(identifier["version_mapping"])
        return tuple((form.version(version), form.text(unique_id)) for version, unique_id in pairs)


def shared_version(a: Pin, points_a: ForkPoints | None, b: Pin, points_b: ForkPoints | None) -> int:
    """The last version that the lines of both pins, which are of one table folder, have in common; 0 if unknown."""
    if points_a is None or points_b is None:
        return 0
    common = 0
    while common < min(len(points_a), len(points_b)) and points_a[common] == points_b[common]:
        common += 1
    ends = [
        pin.version if len(points) == common else min(pin.version, points[common][0])
        for pin, points in ((a, points_a), (b, points_b))
    ]
    return min(ends)
