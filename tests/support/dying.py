"""A process that is killed before a phase of its operation."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.contention.processes import Processes


def die(processes: Processes, path: Path, phase: str, occurrence: int = 1, deed: str = "put") -> None:
    arguments = {"uri": str(path), "deed": deed, "phase": phase, "occurrence": occurrence}
    assert processes.run("perform_deed", arguments).status == -signal.SIGKILL
