"""Places in a .gq file, and errors that show them."""

from __future__ import annotations

from omnigraph.errors import QueryCheckError, QuerySyntaxError
from omnigraph.language.schema.source import Place, Source


class QueryText(Source):
    """The text of a file; makes errors that show the line of a place and a caret under it."""

    def refuse(self, place: Place, detail: str) -> QuerySyntaxError:
        return QuerySyntaxError(code="Q000", **self._fields(place, detail))

    def reject(self, code: str, place: Place, detail: str, query: str, suggestion: str | None) -> QueryCheckError:
        return QueryCheckError(code=code, **self._fields(place, detail), query=query, suggestion=suggestion)
