"""Lance's field ids, and what they mean.

Data files name their columns by field id. Lance gives the next free id of a line to a new column, so two lines of one
table that each add a property use the same id for different properties. A line also uses an id again once no file of
its newest version has that field. Code that compares fragments of two versions, or lets one refer to files of another,
first compares the meaning of their field ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from omnigraph.language.schema.model import EntityType
from omnigraph.storage.lance.columns import physical_columns
from omnigraph.storage.lance.embedding_marks import mark_fields

if TYPE_CHECKING:
    from lance import LanceDataset


def ids_of(field: Any) -> Iterator[int]:
    """The id of a field of a Lance schema, and those of the fields inside of it."""
    yield int(field.id())
    for child in field.children():
        yield from ids_of(child)


def property_ids(table: LanceDataset, t: EntityType) -> dict[int, str]:
    """The property id of every field id of a table, fields inside of others too.

    `t` is the type as the schema of the table's own state has it. Columns that are no properties (id, src, dst, marks
    of vectors) stand for themselves. A column that the schema does not know has no entry.
    """
    id_by_column = {p.name: p.id for p in t.properties}
    id_by_column |= {name: name for name in (*physical_columns(t), *(field.name for field in mark_fields(t)))}
    columns = (field for field in table.lance_schema.fields() if field.name() in id_by_column)
    return {field_id: id_by_column[field.name()] for field in columns for field_id in ids_of(field)}
