"""Every refusal is typed: a condition that never changes, a sentence, what to do about it, and its fields as JSON."""

from __future__ import annotations

import json
import pickle

import pytest

from omnigraph import errors
from omnigraph.errors import OmnigraphError, StorageError


def leaves(of: type[OmnigraphError] = OmnigraphError) -> list[type[OmnigraphError]]:
    below = [c for c in of.__subclasses__() if c.__module__.startswith(errors.__name__)]
    return [leaf for c in below for leaf in (leaves(c) or [c])]


@pytest.mark.parametrize("error", leaves(), ids=lambda e: e.__name__)
def test_every_error_has_a_condition_of_its_own_and_a_remedy(error: type[OmnigraphError]) -> None:
    assert [other for other in leaves() if other.condition == error.condition] == [error]
    assert error.condition.replace("_", "").isalpha()
    assert error.condition == error.condition.lower()
    assert error.remedy_text
    assert error.__doc__ or error.text


@pytest.mark.parametrize("error", leaves(), ids=lambda e: e.__name__)
def test_every_error_travels_between_processes_and_into_json(error: type[OmnigraphError]) -> None:
    fields = {"doing": "opening", "detail": "why"}
    made = error(**fields) if error is StorageError else error(**fields, branch="main", waited_s=1.0)
    back = pickle.loads(pickle.dumps(made))
    assert type(back) is error
    assert back.to_json() == made.to_json()
    body = json.loads(json.dumps(made.to_json()))
    assert list(body)[:3] == ["condition", "message", "remedy"]
    assert body["condition"] == error.condition
    assert body["detail"] == "why"
