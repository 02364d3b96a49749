"""Passwords, keys, signatures and the variables of pipeline files appear in no error, plan or log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.errors import EmbeddingFailed, RecordError, StorageError
from omnigraph.errors.redact import concealing, redact, redacted
from omnigraph.pipeline.file.run import plan_pipeline

SECRET = "S3cretValueOfSomebody"
TEXTS = [
    (f"GET http://user:{SECRET}@host:1/b?x=1 failed", "GET http://***@host:1/b?x=1 failed"),
    (f"https://{SECRET}@host/path", "https://***@host/path"),
    (f"s3://b/k?X-Amz-Signature={SECRET}&X-Amz-Date=1", "s3://b/k?X-Amz-Signature=***&X-Amz-Date=1"),
    (f"https://h/c?sv=1&sig={SECRET}", "https://h/c?sv=1&sig=***"),
    ("mail to anna@example.org about s3://bucket/key@2", "mail to anna@example.org about s3://bucket/key@2"),
    ("a = b, designation=x, e.g. http://host/a?b=c", "a = b, designation=x, e.g. http://host/a?b=c"),
]


@pytest.mark.parametrize(("text", "shown"), TEXTS)
def test_what_urls_carry_is_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_secret_variables_of_the_environment_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "short")
    monkeypatch.setenv("HARMLESS", "not-hidden-at-all")
    assert redact(f"Bearer {SECRET}; short; not-hidden-at-all") == "Bearer ***; short; not-hidden-at-all"


def test_every_error_hides_them_also_behind_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    errors = [
        StorageError(doing=f"opening http://u:{SECRET}@h", detail=f"key {SECRET}"),
        EmbeddingFailed(provider="openai", model="m", detail=f"http://u:{SECRET}@h refused", status=None),
        RecordError(count=1, problems=[{"detail": SECRET}], shown=SECRET),
    ]
    for error in errors:
        assert SECRET not in f"{error} {error!r} {error.message} {error.remedy} {json.dumps(error.to_json())}"


def test_variables_show_by_their_names_while_they_are_concealed() -> None:
    with concealing({"DAY": "2026-01-31", "B": "ma", "DB_PASSWORD": "hunter"}):
        assert (
            redact("in/2026-01-31/p.csv main 12026-01-31 xhunterx")
            == "in/${DAY}/p.csv main 12026-01-31 x${DB_PASSWORD}x"
        )
        assert redacted({"a": ["2026-01-31", 1, None]}) == {"a": ["${DAY}", 1, None]}
    assert redact("2026-01-31") == "2026-01-31"


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph and a pipeline file that uses a secret as a path and as a branch."""
    monkeypatch.setenv("MY_SECRET", SECRET)
    og.init(tmp_path / "g", "node P { name: String @key }")
    (tmp_path / SECRET).mkdir()
    (tmp_path / SECRET / "p.csv").write_text("name\na\n")
    path = tmp_path / "p.yaml"
    path.write_text(
        f"graph: {tmp_path}/g\nmode: merge\nbranch: ${{MY_SECRET}}\nfrom: main\n"
        f'nodes:\n  P: {{path: "{tmp_path}/${{MY_SECRET}}/p.csv"}}\n'
    )
    return path


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("verb", ["validate", "plan", "run"])
def test_a_pipeline_prints_its_variables_by_name(
    pipeline: Path, verb: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", verb, str(pipeline), *options]) == 0
    told = capsys.readouterr()
    assert SECRET not in told.out + told.err
    if verb == "plan":
        assert "${MY_SECRET}/p.csv" in told.out


@pytest.mark.parametrize("verb", ["validate", "plan", "run"])
def test_so_do_its_errors(pipeline: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    (pipeline.parent / SECRET / "p.csv").unlink()
    pipeline.write_text(pipeline.read_text() + "quarantine: s3://${MY_SECRET}/q\n")
    assert main(["pipeline", verb, str(pipeline)]) == 1
    told = capsys.readouterr()
    assert "${MY_SECRET}" in told.err
    assert SECRET not in told.out + told.err


def test_the_plan_of_the_api_has_the_values(pipeline: Path) -> None:
    assert plan_pipeline(pipeline).branch == SECRET


def test_an_internal_error_hides_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError(f"http://u:{SECRET}@host")

    monkeypatch.setenv("OMNIGRAPH_DEBUG", "1")
    monkeypatch.setattr("omnigraph.open", fails)
    assert main(["snapshot", "somewhere"]) == 1
    told = capsys.readouterr()
    assert "internal error" in told.err
    assert SECRET not in told.out + told.err
