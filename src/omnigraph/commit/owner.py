"""The process that holds an advisory lock, a lease or staged files, and whether it is provably gone.

A process can check another one only on the same boot of the same machine and inside the same pid, UTS and time
namespaces; there a pid and its start time identify a process for ever. Elsewhere the state is unknown, and the lease
decides. Unknown counts as not gone.

A process is gone only if one of these holds:

* `kill(pid, 0)` finds no such process. The kernel answers, and not /proc, which may hide other users' processes
  (hidepid), belong to another pid namespace or not be mounted
* `/proc/<pid>/stat` of this process's own pid namespace has another start time (the pid was reused), or shows a zombie
  process without further threads

Everything else leaves the state unknown: no free file descriptor, no permission, no /proc, no record of the owner's
machine.

* `boot`       the kernel's boot id
* `namespace`  the pid namespace. Two containers that share a folder have a process 1 each
* `uts`        the UTS namespace with a digest of the host name: it distinguishes containers that share pids, and copies
               of a virtual machine with different host names
* `time`       the time namespace: the kernel shifts start times by the reader's own offset
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any, Literal

PID_MAX = 2**22
"""The highest pid limit of a Linux kernel."""
_WHERE = ("boot", "namespace", "uts", "time")
_STATE, _THREADS, _START = 0, 17, 19
"""Fields of /proc/<pid>/stat, counted from the one after the command's name."""
_boot: str = ""


def myself() -> dict[str, Any]:
    return {**_where(), "pid": os.getpid(), "start": _start_time("self")}


def clock() -> str:
    """Identifies the CLOCK_BOOTTIME of this process: the boot and the time namespace. Empty if unknown."""
    here = _where()
    return f"{here['boot']}/{here['time']}" if here["boot"] and here["time"] else ""


def is_gone(owner: Mapping[str, Any] | None) -> bool:
    """True only if the process of this owner is certainly not running any more."""
    pid = _pid_here(owner)
    if owner is None or pid is None:
        return False
    return not _exists(pid) or _is_same(pid, owner["start"]) is False


def is_alive(owner: Mapping[str, Any] | None) -> bool:
    """True only if the process of this owner certainly exists, running or stopped."""
    pid = _pid_here(owner)
    return owner is not None and pid is not None and _is_same(pid, owner["start"]) is True


def _pid_here(owner: Mapping[str, Any] | None) -> int | None:
    """The pid of an owner on the same boot and in the same namespaces as this process; None for any other owner."""
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
        return True  # it exists and belongs to another user, or a sandbox refuses the call
    return True


def _is_same(pid: int, start: object) -> bool | None:
    """Whether the process with this pid started at `start` and has not ended; None if unknown."""
    fields = _stat(str(pid)) if _proc_is_own() else None
    if fields is None:
        return None
    # The first thread of a process may end before the others: it shows as a zombie while the process runs.
    has_ended = fields[_STATE] in "ZX" and int(fields[_THREADS]) <= 1
    return fields[_START] == start and not has_ended


def _proc_is_own() -> bool:
    """Whether /proc shows the pid namespace of this process. A parent namespace shows two pids of this process."""
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
    """The kernel's start time of a process; empty if unknown. `self` works in any /proc."""
    fields = _stat(str(pid))
    return "" if fields is None else fields[_START]


# ---- where this process runs -----------------------------------------------------------------------------------------


def _where() -> dict[str, str]:
    """Read again at each call: a child process may run in other namespaces, and a failure is not cached."""
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
        # A kernel without namespaces of this kind has one for all processes, if /proc exists.
        return f"{kind}:none" if os.path.exists("/proc/self/ns") else ""
    except OSError:
        return ""


def _digest(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
