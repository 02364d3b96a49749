"""Search: full text, vectors, and both combined. Indices make it faster and never change its results."""

from __future__ import annotations

from omnigraph.query.search.searcher import Searcher

__all__ = ["Searcher"]
