"""stub"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.language.query.terms import Rank, Search
from omnigraph.query.frame import Frame
from omnigraph.query.source import Source


class Searcher:
    def __init__(self, source: Source, params: Mapping[str, Any]) -> None:
        self.source = source
        self.params = params

    def found(self, e: Search, codes: np.ndarray) -> pa.Array:
        raise NotImplementedError

    def scores(self, e: Rank, frame: Frame) -> pa.Array:
        raise NotImplementedError
