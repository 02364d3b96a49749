"""Which indices a type declares: a pure function of the schema.

| column or property                                   | indices                                               |
|------------------------------------------------------|-------------------------------------------------------|
| `id`; `src` and `dst` of an edge                     | BTREE, always                                         |
| `@key` or `@index` on an enum or Bool                | BITMAP: the values are few                            |
| `@key` or `@index` on a number, Date or DateTime     | BTREE                                                 |
| `@key` or `@index` on a String                       | BTREE for equality and prefix, INVERTED for full text |
| `@index` on a Vector                                 | IVF, by cosine                                        |
| `@index` on a list                                   | LABEL_LIST                                            |

A declaration is an intent: `optimize` builds what is missing. Blobs have no index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from omnigraph.language.schema.model import EntityType, PropertyType

Kind = Literal["BTREE", "BITMAP", "INVERTED", "LABEL_LIST", "IVF"]


@dataclass(frozen=True)
class DeclaredIndex:
    """`property` is the name in the schema; `column` that of the stored column, currently the same.

    `name` is that of a new index. An existing index is identified by its column and kind: a rename keeps its name.
    """

    property: str
    column: str
    kind: Kind
    name: str


def declared(t: EntityType) -> list[DeclaredIndex]:
    """Every index of the type, physical columns first, then properties in the order of the schema."""
    physical = ("id",) if t.kind == "node" else ("id", "src", "dst")
    indices = [_index(column, "BTREE") for column in physical]
    named = {name for c in t.constraints if c.kind in ("key", "index") for name in c.properties}
    for p in t.properties:
        if p.name in named:
            indices += [_index(p.name, kind) for kind in kinds_of(p.type)]
    return indices


def _index(column: str, kind: Kind) -> DeclaredIndex:
    return DeclaredIndex(column, column, kind, f"{column}_{kind.lower()}")


def kinds_of(p: PropertyType) -> tuple[Kind, ...]:
    if p.kind == "String":
        return ("BTREE", "INVERTED")
    if p.kind in ("Enum", "Bool"):
        return ("BITMAP",)
    if p.kind == "Vector":
        return ("IVF",)
    if p.kind == "List":
        return ("LABEL_LIST",)
    return () if p.kind == "Blob" else ("BTREE",)
