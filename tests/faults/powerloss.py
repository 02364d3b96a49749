"""What a power loss may take from a local directory, worked out from the log of file system calls.

The model is POSIX at its strictest: bytes survive if their file was synced after they were written, a name survives if
the folder that holds it was synced after the name came, and a folder that does not survive takes everything below it
along. Names that were removed stay removed, and a name that was given to another file keeps one of the two.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from tests.faults.localdisk import Call


class Unsynced:
    """Follows a log and knows, at any time, which bytes and which names would not survive."""

    def __init__(self) -> None:
        self._file_of: dict[str, int] = {}  # two names of one file share its bytes
        self._numbers = itertools.count()
        self._bytes: set[int] = set()
        self.names: set[str] = set()

    @staticmethod
    def after(log: Iterable[Call]) -> Unsynced:
        found = Unsynced()
        for call in log:
            if call.mutates:
                getattr(found, f"_{call.kind}")(call)
        return found

    @property
    def contents(self) -> set[str]:
        return {name for name, file in self._file_of.items() if file in self._bytes}

    def _touch(self, path: str) -> int:
        return self._file_of.setdefault(path, next(self._numbers))

    def _name(self, call: Call) -> None:
        if not call.existed:
            self.names.add(call.path)

    def _create(self, call: Call) -> None:
        self._name(call)
        self._bytes.add(self._touch(call.path))

    def _write(self, call: Call) -> None:
        self._bytes.add(self._touch(call.path))

    _copy = _truncate = _write
    _mkdir = _name

    def _rename(self, call: Call) -> None:
        self._file_of[call.path] = self._touch(call.source)
        self._name(call)
        self._unlink(Call(call.n, "unlink", call.source))

    def _link(self, call: Call) -> None:
        if not call.existed:
            self._file_of[call.path] = self._touch(call.source)
            self._name(call)

    def _unlink(self, call: Call) -> None:
        self._file_of.pop(call.path, None)
        self.names.discard(call.path)

    def _fsync(self, call: Call) -> None:
        self._bytes.discard(self._file_of.get(call.path, -1))
        self.names = {name for name in self.names if str(PurePosixPath(name).parent) != call.path}


def lose_power(root: Path, log: Iterable[Call], *, rng: random.Random | None = None) -> list[str]:
    """Take from `root` what was not synced: all of it, or a random part. Returns what was taken."""
    unsynced = Unsynced.after(log)
    taken: list[str] = []
    for name in sorted(unsynced.contents):
        path = root / name
        if path.is_file() and (rng is None or rng.random() < 0.5):
            os.truncate(path, 0 if rng is None else rng.randrange(path.stat().st_size + 1))
            taken.append(f"bytes of {name}")
    for name in sorted(unsynced.names):
        path = root / name
        if path.exists() and (rng is None or rng.random() < 0.5):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            taken.append(f"name {name}")
    return taken
