"""Faults at the Nth file system call below a directory that changes or opens something, and a log of all of them.

A client process hands its system calls over to this one through seccomp's user notification (Linux 5.9 or newer):

1. the child installs a filter on these calls and sends the listening end to its `Supervisor` over a socket;
2. every such call of any of its threads stops until the supervisor has answered;
3. the supervisor reads path or descriptor from the child's /proc entry, counts the call if it is below the root, and
   lets it go on, fails it with an errno, kills the process before it, performs it itself and then kills, or performs
   half of a write and then kills.

Nothing has to be compiled, calls that bypass libc are seen as well, and the count covers all threads.

    kill_before, kill_after   SIGKILL, with the call not performed or performed
    torn                      half of the bytes written, then SIGKILL
    enospc, eio               this call fails so, once
    stopped                   SIGSTOP before it; others act (`Supervisor.meanwhile`); SIGCONT, and it goes on
    full                      ENOSPC for this and every later call that needs space
    small                     a disk of `capacity_bytes`: a call that needs more than is free fails with `error`
    broken                    EIO for this and every later call
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import platform
import select
import signal
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.forkserver import Ended, ForkServer, Job

# Kind of call → system call numbers, per machine.
NUMBERS = {
    "x86_64": {
        "create": {"open": 2, "creat": 85, "openat": 257},
        "write": {"write": 1, "pwrite64": 18, "writev": 20, "pwritev": 296, "pwritev2": 328},
        "copy": {"sendfile": 40, "copy_file_range": 326},
        "truncate": {"truncate": 76, "ftruncate": 77, "fallocate": 285},
        "fsync": {"fsync": 74, "fdatasync": 75},
        "rename": {"rename": 82, "renameat": 264, "renameat2": 316},
        "link": {"link": 86, "linkat": 265},
        "unlink": {"unlink": 87, "unlinkat": 263, "rmdir": 84},
        "mkdir": {"mkdir": 83, "mkdirat": 258},
    },
    "aarch64": {
        "create": {"openat": 56},
        "write": {"write": 64, "pwrite64": 68, "writev": 66, "pwritev": 70, "pwritev2": 287},
        "copy": {"sendfile": 71, "copy_file_range": 285},
        "truncate": {"truncate": 45, "ftruncate": 46, "fallocate": 47},
        "fsync": {"fsync": 82, "fdatasync": 83},
        "rename": {"renameat": 38, "renameat2": 276},
        "link": {"linkat": 37},
        "unlink": {"unlinkat": 35},
        "mkdir": {"mkdirat": 34},
    },
}.get(platform.machine(), {})
NAMES = {number: (kind, name) for kind, calls in NUMBERS.items() for name, number in calls.items()}
NEEDS_SPACE = frozenset({"create", "write", "copy", "mkdir", "link"})

SECCOMP = {"x86_64": 317, "aarch64": 277}.get(platform.machine(), -1)
PIDFD_GETFD = 438
PR_SET_NO_NEW_PRIVS = 38
SET_MODE_FILTER = 1
NEW_LISTENER, WAIT_KILLABLE = 1 << 3, 1 << 5
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
GO_ON = 1
NOTIFICATION = struct.Struct("QIIiIQ6Q")
ANSWER = struct.Struct("QqiI")
RECEIVE, SEND = 0xC0502100, 0xC0182101
AT_FDCWD = -100
PAGE = os.sysconf("SC_PAGE_SIZE")

_libc = ctypes.CDLL(None, use_errno=True)
_addresses = itertools.count()


@dataclass(frozen=True)
class Call:
    """A call below the root; paths are relative to it. `source` is set for rename and link.

    `kind` is one of NUMBERS, or "open" where nothing is created by opening. `existed` says that the name was there
    before, so that creating it created nothing.
    """

    n: int
    kind: str
    path: str
    source: str = ""
    existed: bool = False

    @property
    def mutates(self) -> bool:
        return self.kind != "open"


@dataclass(frozen=True)
class DiskFault:
    """Strikes the call with the number `at`, or the first one that `when` is true of."""

    kind: str
    at: int = -1
    when: Callable[[Call], bool] | None = None
    capacity_bytes: int = 0
    error: int = errno.ENOSPC

    def strikes(self, call: Call) -> bool:
        return self.when(call) if self.when else call.n == self.at


class Unsupervisable(Exception):
    """This machine does not let a process hand its system calls over: an old kernel, a sandbox, another system."""


# ---- in the child ----------------------------------------------------------------------------------------------------


def hand_over(address: str) -> None:
    """Give these calls of this process, from now on, to the supervisor that listens there."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect("\0" + address)
        listener = _install()
        socket.send_fds(channel, [b"l"], [listener])
        os.close(listener)


def _install() -> int:
    program = _filter()
    kept = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(kept)))
    _checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    return _checked(_libc.syscall(SECCOMP, SET_MODE_FILTER, NEW_LISTENER | WAIT_KILLABLE, header))


def _filter() -> bytes:
    """The BPF program: the calls of NAMES wait for the supervisor, all others go on."""
    load, equal, give = 0x20, 0x15, 0x06

    def step(code: int, value: int, yes: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, 0, value)

    steps = [step(load, 0)]
    steps += [step(equal, number, len(NAMES) - place) for place, number in enumerate(NAMES)]
    steps += [step(give, ALLOW), step(give, NOTIFY)]
    return b"".join(steps)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# ---- in the harness --------------------------------------------------------------------------------------------------


@dataclass
class Supervisor:
    """Runs one job under supervision; afterwards `log` holds its calls and `struck` the one that met the fault."""

    root: Path
    fault: DiskFault | None = None
    meanwhile: Callable[[], None] | None = None
    log: list[Call] = field(default_factory=list)
    struck: Call | None = None

    def run(
        self,
        server: ForkServer,
        job: str,
        arguments: dict[str, object],
        environment: dict[str, str],
        timeout_s: float = 60.0,
    ) -> Ended:
        address = f"omnigraph-faults-{os.getpid()}-{next(_addresses)}"
        with socket.socket(socket.AF_UNIX) as committer:
            committer.bind("\0" + address)
            committer.listen(1)
            committer.settimeout(30)
            handle = server.start(job, arguments, environment, hand_over_to=address)
            channel, _ = committer.accept()
        with channel:
            channel.settimeout(30)
            _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if not descriptors:
            raise Unsupervisable(f"seccomp user notification: {handle.wait().error}")
        try:
            is_over = self._supervise(descriptors[0], handle, timeout_s)
            return handle.wait(timeout_s if is_over else 0)
        finally:
            os.close(descriptors[0])

    def _supervise(self, listener: int, handle: Job, timeout_s: float) -> bool:
        """Whether the process came to an end in time: one that tries the same again for ever hangs as well."""
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        deadline = time.monotonic() + timeout_s
        while ready := poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if ready[0][1] & select.POLLHUP:
                return True
            if time.monotonic() > deadline:
                break
            buffer = bytearray(NOTIFICATION.size)
            try:
                fcntl.ioctl(listener, RECEIVE, buffer, True)
                number, thread, _, call, _, _, *arguments = NOTIFICATION.unpack(buffer)
                verdict = self._judge(_Stopped(handle, thread, call, arguments))
                flags = 0 if verdict else GO_ON
                fcntl.ioctl(listener, SEND, ANSWER.pack(number, 0, -verdict, flags))
            except (FileNotFoundError, ProcessLookupError):
                continue  # the process was killed meanwhile
        return False

    def _judge(self, stopped: _Stopped) -> int:
        """Count, log, strike. Returns the errno to fail with, or 0 to go on."""
        path = stopped.path
        if not path.is_relative_to(self.root):
            return 0
        source = stopped.source
        relative = str(source.relative_to(self.root)) if source and source.is_relative_to(self.root) else ""
        existed = os.path.lexists(path)
        call = Call(len(self.log), stopped.kind, str(path.relative_to(self.root)), relative, existed)
        self.log.append(call)
        return self._strike(call, stopped) if self.fault else 0

    def _strike(self, call: Call, stopped: _Stopped) -> int:
        assert self.fault is not None
        kind = self.fault.kind
        if kind == "small":
            if stopped.growth_bytes <= self.fault.capacity_bytes - allocated_bytes(self.root):
                return 0
            self.struck = self.struck or call
            return self.fault.error
        if self.struck:
            needs = call.kind in NEEDS_SPACE
            return errno.EIO if kind == "broken" else errno.ENOSPC if kind == "full" and needs else 0
        if not self.fault.strikes(call):
            return 0
        self.struck = call
        if kind in ("kill_before", "kill_after", "torn"):
            stopped.kill(kind)
            return errno.EINTR
        if kind == "stopped":
            assert self.meanwhile is not None
            pid = stopped.handle.pid.result()
            os.kill(pid, signal.SIGSTOP)
            try:
                self.meanwhile()
            finally:
                os.kill(pid, signal.SIGCONT)
            return 0
        return errno.EIO if kind in ("eio", "broken") else errno.ENOSPC


@dataclass
class _Stopped:
    """One call of the child that waits for its verdict."""

    handle: Job
    thread: int
    number: int
    arguments: list[int]

    @property
    def name(self) -> str:
        return NAMES[self.number][1]

    @property
    def kind(self) -> str:
        kind, _ = NAMES[self.number]
        return "open" if kind == "create" and not self._flags & (os.O_CREAT | os.O_TRUNC) else kind

    @property
    def _flags(self) -> int:
        _, b, c, *_ = self.arguments
        return {"openat": c, "open": b, "creat": os.O_CREAT | os.O_TRUNC | os.O_WRONLY}[self.name]

    @property
    def path(self) -> Path:
        """What the call changes: the file behind its descriptor, or the (new) name."""
        a, b, c, d, *_ = self.arguments
        name = self.name
        if name in ("open", "creat", "truncate", "mkdir", "unlink", "rmdir"):
            return self._named(AT_FDCWD, a)
        if name in ("openat", "mkdirat", "unlinkat"):
            return self._named(a, b)
        if name in ("rename", "link"):
            return self._named(AT_FDCWD, b)
        if name in ("renameat", "renameat2", "linkat"):
            return self._named(c, d)
        return self._open_file(c if name == "copy_file_range" else a)

    @property
    def source(self) -> Path | None:
        a, b, *_ = self.arguments
        if self.name in ("rename", "link"):
            return self._named(AT_FDCWD, a)
        return self._named(a, b) if self.name in ("renameat", "renameat2", "linkat") else None

    @property
    def growth_bytes(self) -> int:
        """By how much the call makes a file larger on the disk, as long as files are written from front to back."""
        _, address, size, length, *_ = self.arguments
        if self.name == "fallocate":
            size += length
        elif self.name in ("writev", "pwritev", "pwritev2"):
            size = sum(length for _, length in struct.iter_unpack("QQ", self._memory(address, 16 * size)))
        elif self.kind != "write":
            return 0
        status = self.path.stat()
        end = max(status.st_size, size) if self.name == "fallocate" else status.st_size + size
        return _blocks(end) - max(_blocks(status.st_size), status.st_blocks * 512)

    def _open_file(self, descriptor: int) -> Path:
        return Path(os.readlink(f"/proc/{self.thread}/fd/{descriptor & 0xFFFFFFFF}"))

    def _named(self, folder: int, address: int) -> Path:
        path = Path(os.fsdecode(self._text(address)))
        if path.is_absolute():
            return Path(os.path.normpath(path))
        signed = ctypes.c_int(folder & 0xFFFFFFFF).value
        base = Path(os.readlink(f"/proc/{self.thread}/cwd")) if signed == AT_FDCWD else self._open_file(folder)
        return Path(os.path.normpath(base / path))

    def _memory(self, address: int, size: int) -> bytes:
        with open(f"/proc/{self.thread}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(size)

    def _text(self, address: int) -> bytes:
        text = b""
        while b"\0" not in text:  # page by page: the next one need not exist
            text += self._memory(address + len(text), PAGE - (address + len(text)) % PAGE)
        return text.partition(b"\0")[0]

    def kill(self, how: str) -> None:
        if how != "kill_before":
            # An error here is one the process would have seen itself, had it lived.
            with contextlib.suppress(OSError):
                self._perform(half=how == "torn")
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.handle.pid.result(), signal.SIGKILL)

    def _perform(self, *, half: bool) -> None:
        a, b, c, d, *_ = self.arguments
        name, kind = self.name, self.kind
        paths: dict[str, Callable[[], object]] = {
            "create": lambda: self._create(),
            "rename": lambda: os.rename(self.source or "", self.path),
            "link": lambda: os.link(self.source or "", self.path),
            "mkdir": lambda: os.mkdir(self.path),
            "unlink": lambda: (os.rmdir if self.path.is_dir() else os.unlink)(self.path),
        }
        if kind in paths:
            paths[kind]()
            return
        if name == "truncate":
            os.truncate(self.path, b)
            return
        with self._borrowed(c if name == "copy_file_range" else a) as mine:
            if kind == "fsync":
                os.fsync(mine)
            elif kind == "truncate":
                os.ftruncate(mine, b if name == "ftruncate" else c + d)
            elif kind == "write":
                data = self._data()
                self._write(mine, data[: len(data) // 2] if half else data)
            else:
                with self._borrowed(a if name == "copy_file_range" else b) as theirs:
                    os.sendfile(mine, theirs, None, self.arguments[4] if name == "copy_file_range" else d)

    def _create(self) -> None:
        _, b, c, d, *_ = self.arguments
        mode = {"openat": d, "open": c, "creat": b}[self.name]
        os.close(os.open(self.path, self._flags, mode & 0o777))

    def _data(self) -> bytes:
        _, address, size, *_ = self.arguments
        if self.name in ("write", "pwrite64"):
            return self._memory(address, size)
        pairs = struct.iter_unpack("QQ", self._memory(address, 16 * size))
        return b"".join(self._memory(start, length) for start, length in pairs)

    def _write(self, descriptor: int, data: bytes) -> None:
        if self.name in ("write", "writev"):
            os.write(descriptor, data)
        else:
            os.pwrite(descriptor, data, self.arguments[3])

    @contextlib.contextmanager
    def _borrowed(self, descriptor: int):
        """A descriptor of ours for the child's open file, with the same offset."""
        process = os.pidfd_open(self.handle.pid.result())
        try:
            mine = _checked(_libc.syscall(PIDFD_GETFD, process, descriptor & 0xFFFFFFFF, 0))
            try:
                yield mine
            finally:
                os.close(mine)
        finally:
            os.close(process)


def _blocks(size: int) -> int:
    return -(-size // PAGE) * PAGE


def allocated_bytes(root: Path) -> int:
    """What the files below a directory take on the disk."""
    stats = {s.st_ino: s for path in root.rglob("*") if path.is_file() and (s := path.stat())}
    return sum(max(_blocks(s.st_size), s.st_blocks * 512) for s in stats.values())


def why_unsupervisable(server: ForkServer, directory: Path) -> str:
    """Why this machine can't be used for faults at system calls; empty if it can."""
    supervisor = Supervisor(directory.resolve())
    try:
        supervisor.run(server, "touch", {"path": str(supervisor.root / "touched")}, {})
    except (Unsupervisable, OSError) as reason:
        return str(reason)
    return "" if supervisor.log else "no call was seen"


def fast_directory() -> Path:
    """A new directory in memory where the machine has such a place: fsync is then counted and costs nothing."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    return Path(tempfile.mkdtemp(prefix="omnigraph-faults-", dir=memory if usable else None))
