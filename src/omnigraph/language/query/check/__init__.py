"""From a parsed query and a schema to a CheckedQuery: every name resolved, every expression typed.

`query` is the entry. Patterns (`patterns`, `stages`, `inference`, `braces`), expressions (`typer`, `operators`,
`functions`, `ranking`) and `statements` share one `context`.
"""
