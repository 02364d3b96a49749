"""The root of the tree of errors."""

from __future__ import annotations

from typing import Any, ClassVar

from omnigraph.errors.redact import redacted


class OmnigraphError(Exception):
    """Base of the tree: a condition name, one sentence made from the fields, and what the user can do next."""

    condition: ClassVar[str] = "omnigraph_error"
    text: ClassVar[str] = "{detail}"
    remedy_text: ClassVar[str] = ""
    exit_code: ClassVar[int] = 1

    def __init__(self, **fields: Any) -> None:
        self.fields: dict[str, Any] = redacted(fields)
        super().__init__(self.message)

    @property
    def message(self) -> str:
        return self.text.format_map(Shown(self.fields))

    @property
    def remedy(self) -> str:
        return self.remedy_text.format_map(Shown(self.fields))

    def to_json(self) -> dict[str, Any]:
        """The body of `{"error": …}`: fixed keys first, the error's own fields after them."""
        own = {k: v for k, v in self.fields.items() if k not in ("condition", "message", "remedy")}
        return {"condition": self.condition, "message": self.message, "remedy": self.remedy, **own}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields)


class Shown(dict[str, Any]):
    """Fields for a text; one that is missing is shown as a question mark rather than hiding the error."""

    def __missing__(self, key: str) -> str:
        return "?"


def _rebuild(cls: type[OmnigraphError], fields: dict[str, Any]) -> OmnigraphError:
    return cls(**fields)
