"""The page about backup: what it shows is what the commands say. Times, ids and sizes may differ."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.maintenance.clone import transfer
from tests.cli.conftest import Cli
from tests.pages import DOCS, run_page

SCHEMA = "node Person { name: String @key  age: I32? }"


def plain(text: str) -> list[str]:
    text = re.sub(r"\b01[0-9A-HJKMNP-TV-Z…]{1,24}(?![0-9A-Za-z])", "ID", text)
    text = re.sub(r"\b[\d,]+(\.\d+)? (B|KiB|MiB)\b", "SIZE", text)
    text = re.sub(r"\b\d+\.\d( s\b|(?=\n|$))", "TIME", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "THEN", text)
    text = re.sub(r"nodes/n[0-9a-z]+-[0-9a-f]+", "TABLE", text)
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]


def test_what_the_page_shows_is_what_is_said(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_ENGINE", "local")
    graph = og.init("people", SCHEMA)
    graph.insert({"Person": [{"name": name, "age": 36} for name in ("Ada", "Bob", "Cleo")]})
    graph.create_branch("review")
    graph.upsert({"Person": [{"name": "Bob", "age": 37}]}, branch="review")

    def killed() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(transfer.Transfer, "version", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                og.clone("people", "nightly")

    first = {"a clone was killed": killed, "the folder was copied": lambda: shutil.copytree("people", "moved")}
    assert run_page(DOCS / "backup.md", tmp_path, cli, plain, first=first) == 11
