"""Which engine runs a job: Spark, or this process if starting a JVM would take longer than the job."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from omnigraph.errors import UsageError
from omnigraph.tasks.progress import SilentWatcher, Watcher
from omnigraph.tasks.runner import LocalRunner, Runner, SparkRunner
from omnigraph.tasks.session import SparkSettings, active_session, spark_session

Choice = Literal["auto", "spark", "local"]
SMALL_BYTES = 8 << 20
"""Smaller jobs run in this process, unless a session is running already or Spark was requested."""


@dataclass(frozen=True)
class EngineSettings:
    """The engine settings of a graph handle: the requested engine, and the caller's session if there is one."""

    requested: str | None = None
    settings: SparkSettings = field(default_factory=SparkSettings)
    session: Any = None
    watcher: Watcher = field(default_factory=SilentWatcher)

    def asked_for(self, requested: str | None = None) -> str:
        """What the caller, the handle or the environment chose, in this order; `auto` if none of them did."""
        choice = requested or self.requested or os.environ.get("OMNIGRAPH_ENGINE") or "auto"
        if choice not in get_args(Choice):
            setting = "the engine" if requested or self.requested else "OMNIGRAPH_ENGINE"
            raise UsageError(detail=f"{setting} is one of {', '.join(get_args(Choice))}, not {choice!r}.")
        return choice

    def choose(
        self, *, work_bytes: int | None, requested: str | None = None, local_below_bytes: int = SMALL_BYTES
    ) -> tuple[str, str]:
        """The engine's name and the reason. `work_bytes` None: the size is not known, and may be large."""
        choice = self.asked_for(requested)
        if choice != "auto":
            return choice, "as asked for"
        if self.session is not None or active_session() is not None:
            return "spark", "a session is running"
        if work_bytes is not None and work_bytes < local_below_bytes:
            return "local", "starting a JVM would take longer than the work"
        size = "of unknown size" if work_bytes is None else f"of {work_bytes / 2**20:.0f} MiB"
        return "spark", f"work {size}"

    def runner(
        self,
        *,
        work_bytes: int | None,
        requested: str | None = None,
        reason: str | None = None,
        local_below_bytes: int = SMALL_BYTES,
    ) -> Runner:
        """The runner. `reason` is shown if `requested` was chosen by the program and not by the user."""
        name, why = self.choose(work_bytes=work_bytes, requested=requested, local_below_bytes=local_below_bytes)
        self.watcher.engine(name, reason or why)
        if name == "local":
            return LocalRunner(watcher=self.watcher)
        return SparkRunner(self.session or spark_session(self.settings), watcher=self.watcher)
