"""Every code has a family, a meaning and a remedy; findings are plain JSON."""

from __future__ import annotations

from omnigraph.language.schema import CODES, FAMILIES
from omnigraph.language.schema.lint import finding

DOCUMENTED = {
    *(f"OG-DS-{n}" for n in (101, 102, 103, 104, 105)),
    *(f"OG-MF-{n}" for n in (103, 104, 106)),
}


def test_the_table_of_codes_is_complete() -> None:
    assert set(CODES) == DOCUMENTED
    assert len(FAMILIES) == 10
    for code in CODES.values():
        assert code.family in FAMILIES
        assert code.meaning
        assert code.remedy.endswith(".")
        assert code.severity == ("warning" if code.family == "DS" else "error")


def test_a_finding_carries_its_remedy() -> None:
    assert finding("OG-DS-104", "node:P.a", "gone").to_json() == {
        "code": "OG-DS-104",
        "severity": "warning",
        "entity": "node:P.a",
        "message": "gone",
        "suggestion": "Keep the property, or rename it with @rename_from.",
    }
