"""From .gq text to trees, and from trees to canonical text. Nothing here reads a schema.

`lexer`, `parse` and the grammar give the tree of the parser, `queries` and `expressions` a `tree` with places. `show`
writes text; `literals` decodes and encodes values.
"""
