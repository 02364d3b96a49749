"""Questions to the graph of the demo: along edges, by words, by meaning, and all of it together.

1. ask      before optimize: every question on a new handle, which knows nothing yet, and once more on the same
2. again    after optimize, the same
3. tell     at the end: each question with its rows, and what it took before and after

Keeps: the rows before and after are equal, scores and order included. Maintenance may change times, never an answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.demo.narrator import Stage

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
    """`table` is for people. Seconds of a handle that knows nothing yet, and of one that has answered before."""

    rows: list[dict[str, Any]]
    table: str
    first_s: float
    again_s: float

    @property
    def seconds(self) -> tuple[float, float]:
        return round(self.first_s, 4), round(self.again_s, 4)


@dataclass(frozen=True)
class Asked:
    """One question before and after optimize, for programs. Pairs are seconds: asked first, asked again."""

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
        Question("full text", f"which posts speak of {WORDS}, in any form of the word?", "about", {"words": WORDS}),
        Question("vector", f"which posts are about {TEXT}?", "alike", {"text": TEXT}),
        Question(
            "hybrid",
            f"both, among the posts of the people whom {who} follows, in up to 3 steps?",
            "both",
            {"words": WORDS, "text": TEXT, "handle": who},
        ),
    )


def ask(uri: str, asked: Sequence[Question]) -> list[Answer]:
    """Steps 1 and 2: every question on a handle of its own, twice."""
    return [_ask(uri, question) for question in asked]


def _ask(uri: str, question: Question) -> Answer:
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


def compare(asked: Sequence[Question], before: Sequence[Answer], after: Sequence[Answer]) -> tuple[Asked, ...]:
    """What the two rounds have in common, which is every row, and what they took."""
    for question, one, other in zip(asked, before, after, strict=True):
        assert one.rows == other.rows, f"optimize changed the answer to {question.name}: {one.table}\n{other.table}"
    return tuple(Asked(q.name, len(a.rows), b.seconds, a.seconds) for q, b, a in zip(asked, before, after, strict=True))


def tell_answers(asked: Sequence[Question], before: Sequence[Answer], after: Sequence[Answer], stage: Stage) -> None:
    """Step 3."""
    stage.say(
        "\n12. Questions, asked before and after the optimize of step 7. The rows are the same, and so are scores\n"
        "   and order. Times are those of a new handle, and of the same handle asked again."
    )
    for question, one, other in zip(asked, before, after, strict=True):
        stage.say(f"\n   {question.kind}: {question.asks}")
        for line in other.table.splitlines():
            stage.say(f"     {line}")
        stage.say(f"   before optimize {_times(one)}; after it {_times(other)}")


def _times(answer: Answer) -> str:
    return f"{_ms(answer.first_s)}, again {_ms(answer.again_s)}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"
