"""Who holds a ticket, and whether that process is provably gone.

Two processes can tell about each other only on one boot of one machine and inside one pid namespace; there a pid and
its start time name a process for good. Anywhere else the answer is "don't know", and the lease decides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


def myself() -> dict[str, Any]:
    return {"boot": _boot_id(), "namespace": _namespace(), "pid": os.getpid(), "start": _start_time(os.getpid())}


def is_gone(owner: Mapping[str, Any] | None) -> bool:
    """True only if the process that this describes can't be running any more."""
    if not isinstance(owner, Mapping) or not owner.get("boot") or not owner.get("start"):
        return False
    if owner.get("boot") != _boot_id() or owner.get("namespace") != _namespace():
        return False
    pid = owner.get("pid")
    return isinstance(pid, int) and _start_time(pid) != owner.get("start")


@lru_cache(maxsize=1)
def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


@lru_cache(maxsize=1)
def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """The kernel's start time of a process; empty if there is none or it is only waiting to be reaped."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            after_name = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return ""
    return "" if after_name[0] in "ZX" else after_name[19]
