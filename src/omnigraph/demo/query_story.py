"""Questions to the graph of the demo: along edges, by words, by meaning, and all of it together.

1. before   optimize: every question on a new handle with empty caches, and once more on the same
2. after    optimize, the same
3. report   at the end: each question with its rows, and its times before and after

Invariant: the rows before and after are equal, with scores and order. Maintenance may change times, never an answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.demo.narrator import Narrator

QUESTIONS = Path(__file__).parent / "questions.gq"
WORDS = "telescopes"
TEXT = "watching stars through a large lens at night"


@dataclass(frozen=True)
class Question:
    kind: str
    asks: str
    name: str
    params: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """`table` is for people. Seconds of a handle with empty caches, and of one that has answered before."""

    rows: list[dict[str, Any]]
    table: str
    first_s: float
    again_s: float

    @property
    def seconds(self) -> tuple[float, float]:
        return round(self.first_s, 4), round(self.again_s, 4)


@dataclass(frozen=True)
class QuestionTimes:
    """One question before and after optimize, for programs. Pairs are seconds: first run, second run."""

    name: str
    rows: int
    before_s: tuple[float, float]
    after_s: tuple[float, float]


def questions(graph: og.Graph) -> tuple[Question, ...]:
    """The four questions, on behalf of the person who follows most people."""
    (curious,) = graph.query(QUESTIONS, "most_curious").to_pylist()
    who = curious["handle"]
    return (
        Question(
            "traversal", f"where do the people work whom {who} follows, in up to 3 steps?", "circle", {"handle": who}
        ),
        Question("full text", f"which posts mention {WORDS}, in any form of the word?", "about", {"words": WORDS}),
        Question("vector", f"which posts are about {TEXT}?", "alike", {"text": TEXT}),
        Question(
            "hybrid",
            f"both, among the posts of the people whom {who} follows, in up to 3 steps?",
            "both",
            {"words": WORDS, "text": TEXT, "handle": who},
        ),
    )


def run_questions(uri: str, asked: Sequence[Question]) -> list[Answer]:
    """Steps 1 and 2: every question on a handle of its own, twice."""
    return [_run_question(uri, question) for question in asked]


def _run_question(uri: str, question: Question) -> Answer:
    with og.open(uri) as graph:
        began = time.monotonic()
        result = graph.query(QUESTIONS, question.name, question.params)
        rows = result.to_pylist()
        first_s = time.monotonic() - began
        began = time.monotonic()
        again = graph.query(QUESTIONS, question.name, question.params).to_pylist()
        again_s = time.monotonic() - began
    assert again == rows, f"{question.name} was answered differently the second time"
    return Answer(rows, str(result), first_s, again_s)


def compare(asked: Sequence[Question], before: Sequence[Answer], after: Sequence[Answer]) -> tuple[QuestionTimes, ...]:
    """Check that both rounds have the same rows, and return their times."""
    for question, old, new in zip(asked, before, after, strict=True):
        assert old.rows == new.rows, f"optimize changed the answer to {question.name}: {old.table}\n{new.table}"
    return tuple(
        QuestionTimes(q.name, len(a.rows), b.seconds, a.seconds) for q, b, a in zip(asked, before, after, strict=True)
    )


def tell_answers(
    asked: Sequence[Question], before: Sequence[Answer], after: Sequence[Answer], narrator: Narrator
) -> None:
    """Step 3."""
    narrator.say(
        "\n12. Questions, asked before and after the optimize of step 7. The rows are the same, and so are scores\n"
        "   and order. Times are those of a new handle, and of the same handle asked again."
    )
    for question, old, new in zip(asked, before, after, strict=True):
        narrator.say(f"\n   {question.kind}: {question.asks}")
        for line in new.table.splitlines():
            narrator.say(f"     {line}")
        narrator.say(f"   before optimize {_times(old)}; after it {_times(new)}")


def _times(answer: Answer) -> str:
    return f"{_ms(answer.first_s)}, again {_ms(answer.again_s)}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"
