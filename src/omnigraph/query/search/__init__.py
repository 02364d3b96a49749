"""Search: full text, vectors, and both together. Indices make it faster and never change what it finds."""

from __future__ import annotations

from omnigraph.query.search.searcher import Searcher

__all__ = ["Searcher"]
