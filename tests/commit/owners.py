"""Owners and observers in processes of their own, with namespaces, users and limits of their own: `python -m … CASE`.

Prints a JSON object: what the observer of the case says about owners that live, and about ones that have ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from omnigraph.commit import owner

CLONE_NEWTIME, CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWPID = 0x80, 0x20000, 0x4000000, 0x20000000
MS_REC_PRIVATE = 0x4000 | 0x40000
SYS_EXIT = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
_libc = ctypes.CDLL(None, use_errno=True)


def _called(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def unshare(flags: int) -> None:
    _called(_libc.unshare(flags))


def mount_proc(options: str) -> None:
    """A /proc of its own, for this process and its children only."""
    unshare(CLONE_NEWNS)
    _called(_libc.mount(None, b"/", None, MS_REC_PRIVATE, None))
    _called(_libc.mount(b"proc", b"/proc", b"proc", 0, options.encode()))


class Child:
    """A forked process: `first` runs in it, what it returns is known here, and it sleeps until it is killed."""

    def __init__(self, first: Callable[[], Any], *, lives: bool = True) -> None:
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(first, write, lives)
        os.close(write)
        with open(read) as file:
            self.told = json.loads(file.readline())
        if not lives:
            os.waitpid(self.pid, 0)

    @staticmethod
    def _run(first: Callable[[], Any], write: int, lives: bool) -> None:
        try:
            told = first()
        except (OSError, ValueError, AssertionError) as error:
            told = {"error": repr(error)}
        os.write(write, json.dumps(told).encode() + b"\n")
        while lives:
            time.sleep(60)
        os._exit(0)

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _as_user(user: int, then: Callable[[], Any]) -> Callable[[], Any]:
    def first() -> Any:
        os.setgid(user)
        os.setuid(user)
        return then()

    return first


def out_of_descriptors() -> dict[str, bool]:
    alive = Child(owner.myself)
    ended = Child(owner.myself, lives=False)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, hard))
    with suppress(OSError):
        while True:
            os.open("/dev/null", os.O_RDONLY)
    told = {"alive": owner.is_gone(alive.told), "me": owner.is_gone(me), "ended": owner.is_gone(ended.told)}
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    alive.end()
    return {**told, "later": bool(owner.myself()["boot"])}


def hidden_processes() -> dict[str, bool]:
    """The observer is another user and sees no process but its own in /proc."""
    alive = Child(_as_user(1001, owner.myself))
    ended = Child(_as_user(1001, owner.myself), lives=False)

    def look() -> dict[str, bool]:
        mount_proc("hidepid=2")
        os.setgid(1002)
        os.setuid(1002)
        assert not os.path.exists(f"/proc/{alive.pid}")
        return {"alive": owner.is_gone(alive.told), "ended": owner.is_gone(ended.told)}

    observer = Child(look, lives=False)
    alive.end()
    return dict(observer.told)


def foreign_proc() -> dict[str, bool]:
    """Owners and observer share a pid namespace; the /proc that they see is that of another one."""

    def inside() -> dict[str, bool]:
        alive = Child(owner.myself)
        ended = Child(owner.myself, lives=False)
        told = {"alive": owner.is_gone(alive.told), "ended": owner.is_gone(ended.told), "me": owner.is_gone(me)}
        reused = {**alive.told, "start": "1"}
        told["unknown"] = owner.is_gone(reused)
        told["started"] = bool(alive.told["start"])
        alive.end()
        return told

    unshare(CLONE_NEWPID)
    return dict(Child(inside, lives=False).told)


def other_pid_namespace() -> dict[str, bool]:
    def inside() -> dict[str, Any]:
        mount_proc("")
        return owner.myself()

    unshare(CLONE_NEWPID)
    alive = Child(inside)
    told = {"alive": owner.is_gone(alive.told)}
    alive.end()
    return {**told, "ended": owner.is_gone(alive.told)}


def other_uts_namespace() -> dict[str, bool]:
    alive = Child(owner.myself)
    ended = Child(owner.myself, lives=False)
    unshare(CLONE_NEWUTS)
    told = {"alive": owner.is_gone(alive.told), "ended": owner.is_gone(ended.told)}
    alive.end()
    return told


def other_time_namespace() -> dict[str, bool]:
    """There the kernel tells another start time of one and the same process."""
    alive = Child(owner.myself)
    unshare(CLONE_NEWTIME)
    with open("/proc/self/timens_offsets", "w") as file:
        file.write("boottime 1000 0\n")
    seen = Child(lambda: {"alive": owner.is_gone(alive.told)}, lives=False)
    alive.end()
    return dict(seen.told)


def first_thread_ended() -> dict[str, bool]:
    """The first thread of the owner has ended, which looks like a zombie; another one works on."""

    def first() -> dict[str, Any]:
        told = owner.myself()
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        threading.Thread(target=lambda: None).start()
        return told

    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, json.dumps(first()).encode() + b"\n")
        _libc.syscall(SYS_EXIT, 0)
    with open(read) as file:
        told = json.loads(file.readline())
    deadline = time.monotonic() + 30
    while " Z " not in _stat(pid) and time.monotonic() < deadline:
        time.sleep(0.005)
    found = {"zombie": " Z " in _stat(pid), "alive": owner.is_gone(told)}
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return {**found, "ended": owner.is_gone(told)}


def _stat(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read()


me: dict[str, Any] = owner.myself()

if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
