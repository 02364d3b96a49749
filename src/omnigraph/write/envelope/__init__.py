"""Envelope: NDJSON lines to typed tables, one per type, with the line each row came from, and the lines refused.

1. cut      the input into blocks at line feeds; blank lines are skipped, and counted in line numbers
2. group    the lines of a block by how they start (`blocks`)
3. read     each group by the fast way (`typed`, `forms`); where that fails, the group is cut and tried again
4. judge    the lines that are left, one by one (`record`); only the judge refuses a line
5. put      the rows of a type back into the order of their lines

Blocks are read in parallel and returned in order. Rows without a key and without an id of their own get ULIDs that
increase with the line. Which way a line takes never shows: the same verdict, the same values.
"""

from __future__ import annotations

from omnigraph.write.envelope.reading import Parsed, RejectedLine, TypeRows, chunks_of, parse

__all__ = ["Parsed", "RejectedLine", "TypeRows", "chunks_of", "parse"]
