"""Client processes at the price of a fork: the fork server of the fault tests, with the jobs of this folder.

python -m tests.contention.processes     the server itself; `Processes` starts it
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from tests.faults.forkserver import REPOSITORY, ForkServer


class Processes(ForkServer):
    """Hands out jobs of `clients`, `keepers` and `mixed_clients`. Syncs nothing: these are not about power loss."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        super().__init__({"OMNIGRAPH_FSYNC": "off", **(environment or {})})

    def __enter__(self) -> Processes:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.contention.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            env=self._environment,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self


def is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    except OSError:
        return False


def serve() -> None:
    from tests.contention import clients, keepers, mixed_clients
    from tests.faults import forkserver

    assert clients.JOBS is keepers.JOBS is mixed_clients.JOBS
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")
    forkserver._serve()


if __name__ == "__main__":
    serve()
