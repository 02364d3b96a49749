"""Merge the rows of one type: what each side changed, entities decided by value, and the table work of the result."""
