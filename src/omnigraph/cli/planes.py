"""Planes: what a verb works on, and so which flags it has. A flag of another plane is refused by name, never ignored.

data      a graph: by positional URI or --store
direct    storage itself: as data; the actor is not chosen by the caller, and servers can't do it. Maintenance finds
          its graph by --cluster and --graph too
local     no graph at all
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from omnigraph.errors import DirectOnly, UsageError

Plane = Literal["data", "direct", "local"]

MAINTENANCE = {"optimize", "repair", "relocate", "cleanup", "verify", "maintain", "stats"}
DIRECT = {"init", "clone", "lint", "schema plan"} | MAINTENANCE
LOCAL = {"completion", "version"}

_ADDRESSES = {
    "--server": "a server",
    "--graph": "a graph of a server or a cluster",
    "--cluster": "a cluster",
    "--profile": "a profile",
    "--target": "a target that a server has",
}
_STORAGE_ONLY = "Give the graph's storage instead: a path, a file:// or an s3:// URI, as argument or with --store."


@dataclass(frozen=True)
class Refusal:
    message: str
    remedy: str
    condition: str = UsageError.condition


def plane_of(verb: str) -> Plane:
    return "direct" if verb in DIRECT else "local" if verb in LOCAL else "data"


def foreign_flag(verb: str, flag: str) -> Refusal | None:
    """Why `omnigraph VERB` does not have this flag; None if no verb has it."""
    name = verb or "omnigraph"
    plane = plane_of(verb)
    if flag in (*_ADDRESSES, "--store", "--as", "--if-commit", "--yes", "--branch") and plane == "local":
        return Refusal(f"{flag} can't be used with {name}, which touches no graph.", f"Leave {flag} out.")
    if flag in ("--server", "--target", "--profile") and verb in MAINTENANCE:
        error = DirectOnly(given=flag, verb=name)
        return Refusal(error.message, error.remedy, error.condition)
    if flag in _ADDRESSES:
        return Refusal(_address_refused(name, flag, plane), _STORAGE_ONLY)
    if flag == "--as":
        if plane == "direct":
            message = f"--as can't be used with {name}, which works on storage directly and not in somebody's name."
            return Refusal(message, "Leave --as out; OMNIGRAPH_ACTOR names the actor of what is recorded.")
        return Refusal(f"--as can't be used with {name}, which records no actor.", "Leave --as out.")
    if flag == "--if-commit":
        return Refusal(f"--if-commit can't be used with {name}, whose outcome hangs on no commit.", "Leave it out.")
    if flag == "--yes":
        return Refusal(f"--yes can't be used with {name}, which destroys nothing and never asks.", "Leave --yes out.")
    if flag == "--json" and verb == "shell":
        return Refusal("--json can't be used with shell, which gives many answers.", "Use --format json.")
    if flag == "--quiet":
        return Refusal(f"--quiet can't be used with {name}, which says nothing but its answer.", "Leave --quiet out.")
    return None


def _address_refused(name: str, flag: str, plane: Plane) -> str:
    why = "works on storage directly" if plane == "direct" else "works on storage only in this version"
    return f"{flag} names {_ADDRESSES[flag]}, and {name} {why}."
