"""Who holds a ticket, a lease or staged files, and whether that process is provably gone.

Two processes can tell about each other only on one boot of one machine and inside the same namespaces of pids, of host
names and of time; there a pid and its start time name a process for good. Anywhere else the answer is "not known", and
the lease decides. "Not known" is told as not gone.

Gone is proven by one of these alone:

* `kill(pid, 0)` finds no such process. This asks the kernel and not /proc, which may hide other users' processes
  (hidepid), belong to another pid namespace or not be mounted
* `/proc/<pid>/stat` of one's own pid namespace names another start time (the pid was used again), or a zombie without
  further threads

Everything else says nothing: no descriptor left, no permission, no /proc, no record of where the owner runs.

* `boot`       the kernel's boot id
* `namespace`  of pids. Two containers that share a folder have a process 1 each
* `uts`        of host names, with a digest of the name: containers that share pids are still told apart, and so are
               copies of a virtual machine that were given names of their own
* `time`       of clocks: the kernel shifts start times by the reader's own offset
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any, Literal

PID_MAX = 2**22
"""No Linux kernel gives a higher one."""
_WHERE = ("boot", "namespace", "uts", "time")
_STATE, _THREADS, _START = 0, 17, 19
"""Fields of /proc/<pid>/stat, counted from the one after the command's name."""
_boot: str = ""


def myself() -> dict[str, Any]:
    return {**_where(), "pid": os.getpid(), "start": _start_time("self")}


def clock() -> str:
    """Which CLOCK_BOOTTIME this process reads: that of one boot, in one namespace of time. Empty if not known."""
    here = _where()
    return f"{here['boot']}/{here['time']}" if here["boot"] and here["time"] else ""


def is_gone(owner: Mapping[str, Any] | None) -> bool:
    """True only if the process that this describes can't be running any more."""
    pid = _pid_here(owner)
    if owner is None or pid is None:
        return False
    return not _exists(pid) or _is_same(pid, owner["start"]) is False


def is_alive(owner: Mapping[str, Any] | None) -> bool:
    """True only if the process that this describes is there, running or stopped."""
    pid = _pid_here(owner)
    return owner is not None and pid is not None and _is_same(pid, owner["start"]) is True


def _pid_here(owner: Mapping[str, Any] | None) -> int | None:
    """The pid of an owner that runs, or ran, where this process does."""
    if not isinstance(owner, Mapping) or not owner.get("start"):
        return None
    here = _where()
    if any(not here[name] or owner.get(name) != here[name] for name in _WHERE):
        return None
    pid = owner.get("pid")
    return pid if type(pid) is int and 0 < pid <= PID_MAX else None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it is there, and somebody else's; or a sandbox refuses to answer
    return True


def _is_same(pid: int, start: object) -> bool | None:
    """Whether the process of this pid is the one that began at `start` and has not ended; None if that is not known."""
    fields = _stat(str(pid)) if _proc_is_own() else None
    if fields is None:
        return None
    # The first thread of a process may end before the others: it is a zombie then, and the process lives.
    has_ended = fields[_STATE] in "ZX" and int(fields[_THREADS]) <= 1
    return fields[_START] == start and not has_ended


def _proc_is_own() -> bool:
    """Whether /proc shows the pid namespace of this process. A namespace above it shows two pids of this process."""
    try:
        with open("/proc/self/status") as file:
            pids = next((line.split()[1:] for line in file if line.startswith("NSpid:")), [])
    except OSError:
        return False
    return pids == [str(os.getpid())]


def _stat(pid: str) -> list[str] | None:
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > _START else None


def _start_time(pid: int | Literal["self"]) -> str:
    """The kernel's start time of a process; empty if that is not known. `self` is right in any /proc."""
    fields = _stat(str(pid))
    return "" if fields is None else fields[_START]


# ---- where this process runs -----------------------------------------------------------------------------------------


def _where() -> dict[str, str]:
    """Asked anew each time: a child process may have been put elsewhere, and a failure is not remembered."""
    uts = _namespace("uts")
    return {
        "boot": _boot_id(),
        "namespace": _namespace("pid"),
        "uts": f"{uts}/{_digest(os.uname().nodename)}" if uts else "",
        "time": _namespace("time"),
    }


def _boot_id() -> str:
    global _boot
    if not _boot:
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                _boot = file.read().strip()
        except OSError:
            return ""
    return _boot


def _namespace(kind: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except FileNotFoundError:
        # A kernel without namespaces of this kind has one for all, if it has any /proc.
        return f"{kind}:none" if os.path.exists("/proc/self/ns") else ""
    except OSError:
        return ""


def _digest(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
