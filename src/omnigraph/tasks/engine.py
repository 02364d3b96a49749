"""Which engine runs a job: Spark, or this process, where a JVM would take longer to start than the work takes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from omnigraph.errors import UsageError
from omnigraph.tasks.progress import Silent, Watcher
from omnigraph.tasks.runner import LocalRunner, Runner, SparkRunner
from omnigraph.tasks.session import SparkSettings, active_session, spark_session

Choice = Literal["auto", "spark", "local"]
SMALL_BYTES = 8 << 20
"""Work on less than this is done in this process, unless a session is running already or Spark was asked for."""


@dataclass(frozen=True)
class Engines:
    """What a graph handle knows of engines: what was asked for, and the session to use if the caller has one."""

    requested: str | None = None
    settings: SparkSettings = field(default_factory=SparkSettings)
    session: Any = None
    watcher: Watcher = field(default_factory=Silent)

    def asked_for(self, requested: str | None = None) -> str:
        """What the caller, the handle or the environment say, in this order; `auto` if none of them does."""
        asked = requested or self.requested or os.environ.get("OMNIGRAPH_ENGINE") or "auto"
        if asked not in get_args(Choice):
            what = "the engine" if requested or self.requested else "OMNIGRAPH_ENGINE"
            raise UsageError(detail=f"{what} is one of {', '.join(get_args(Choice))}, not {asked!r}.")
        return asked

    def choose(
        self, *, work_bytes: int | None, requested: str | None = None, local_below_bytes: int = SMALL_BYTES
    ) -> tuple[str, str]:
        """The engine's name and the reason in words. `work_bytes` None: the size is not known, and may be large."""
        asked = self.asked_for(requested)
        if asked != "auto":
            return asked, "as asked for"
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
        """`reason` says why `requested` is what it is, where nobody asked for it."""
        name, why = self.choose(work_bytes=work_bytes, requested=requested, local_below_bytes=local_below_bytes)
        self.watcher.engine(name, reason or why)
        if name == "local":
            return LocalRunner(watcher=self.watcher)
        return SparkRunner(self.session or spark_session(self.settings), watcher=self.watcher)
