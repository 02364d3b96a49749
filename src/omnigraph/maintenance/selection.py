"""Tables chosen by name, in the same way by optimize and repair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omnigraph.errors import UnknownType, UsageError
from omnigraph.write.violations import nearest


def table_names(tables: Sequence[str] | None) -> tuple[str, ...] | None:
    """The names as options hold them, None for all tables. UsageError if the list is empty."""
    if tables is not None and not tables:
        raise UsageError(detail="no table is named: name at least one, or leave the option out for all of them.")
    return None if tables is None else tuple(tables)


def choose_tables(table_keys: Mapping[str, str], names: Sequence[str] | None) -> list[str]:
    """Type ids of these table keys or type names, all if None, in the order of their table keys. UnknownType."""
    if names is None:
        return sorted(table_keys, key=table_keys.__getitem__)
    by_name = {name: t for t, key in table_keys.items() for name in (key, key.partition(":")[2])}
    for name in names:
        if name not in by_name:
            suggestion = nearest(name, by_name)
            more = {} if suggestion is None else {"suggestion": repr(suggestion)}
            raise UnknownType(kind="node or edge", type_name=name, **more)
    return sorted({by_name[name] for name in names}, key=table_keys.__getitem__)
