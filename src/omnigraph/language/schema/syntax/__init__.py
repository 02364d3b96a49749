"""From .pg text to a Schema, and from a Schema to canonical text.

`lexer`, `parse` and the grammar give `declarations` with places. `rules`, `annotations`, `constraints` and `literals`
check them and make the model; `show` writes text.
"""
