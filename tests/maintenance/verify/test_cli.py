"""The command: exit code, JSON, the summary for people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from tests.maintenance.verify import damage


def test_json_of_a_whole_graph(plain: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", plain.uri, "--engine", "local", "--json"]) == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert list(document) == ["ok", "checked", "findings", "engine", "seconds"]
    assert document["ok"] is True
    assert document["findings"] == []
    assert document["engine"] == "local"
    assert list(document["checked"]) == [
        *("branches", "tags", "commits", "tables", "files", "bytes", "rows", "indices", "index_questions", "blobs"),
        *("checksums", "unchecked", "unchecked_bytes"),
    ]
    assert f"verifying {plain.uri}" in shown.err


def test_errors_end_in_exit_code_1_and_name_the_remedy(plain: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    damage.raw_rows(plain, "Knows", [{"id": "bad", "src": "p001", "dst": "nobody"}])
    assert main(["verify", plain.uri, "--engine", "local", "--json", "-q"]) == 1
    shown = capsys.readouterr()
    assert shown.err == ""
    (finding,) = json.loads(shown.out)["findings"]
    fields = ["code", "severity", "message", "remedy", "table", "branch", "count", "examples"]
    assert list(finding) == [*fields, "table_key"]
    assert finding["code"] == "dangling_endpoint"
    assert main(["verify", plain.uri, "--engine", "local", "-q"]) == 1
    text = capsys.readouterr().out
    assert "error dangling_endpoint edge:Knows on main: edges have a dst that is no Person" in text
    assert "  → Add the missing nodes" in text
    assert text.endswith("not ok: 1 error, 0 warnings\n")


def test_warnings_end_in_exit_code_0(plain: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    plain.insert({"City": [{"name": "Trier"}]})
    assert main(["verify", plain.uri, "--quick", "-q"]) == 0
    assert capsys.readouterr().out.endswith("ok, with 1 warning\n")


def test_the_target_is_named_before_the_graph_is_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path / "nowhere")]) != 0
    shown = capsys.readouterr().err.splitlines()
    assert f"verifying {tmp_path / 'nowhere'}" in shown[0]
    assert "error" in shown[1]


def test_an_age_that_is_none_is_wrong_usage(plain: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", plain.uri, "--orphans-older-than", "soon"]) == 2
    assert "--orphans-older-than" in capsys.readouterr().err
