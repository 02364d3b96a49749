"""The operations of the model, done to a real graph; and a real graph read back in the model's terms."""

from __future__ import annotations

import json
from typing import Any

from tests.properties.model import Operation


def perform(graph: Any, operation: Operation) -> Any:
    match operation["op"]:
        case "create_branch":
            return graph.create_branch(operation["name"], from_branch=operation["from"])
        case "delete_branch":
            return graph.delete_branch(operation["name"])
        case "schema":
            return graph.apply_schema(operation["text"], branch=operation["branch"])
    with graph.transaction(operation["branch"]) as tx:
        for statement in operation["statements"]:
            name = statement["type"]
            match statement["do"]:
                case "delete":
                    tx.delete({name: statement["ids"]})
                case "update":
                    tx.update(name, statement["set"], ids=statement["ids"])
                case "upsert":
                    tx.upsert({name: statement["rows"]})
                case _:
                    tx.insert({name: statement["rows"]})
    return tx.result


def read(snapshot: Any) -> dict[str, dict[str, dict[str, Any]]]:
    """Rows by type and id; a row that is there twice is an error at once."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for t in snapshot.schema.types():
        rows = snapshot.read(t.name).to_pylist()
        found[t.name] = {row.pop("id"): row for row in rows}
        assert len(found[t.name]) == len(rows), f"{t.name} holds a row twice"
    return found


def logical(rows: dict[str, dict[str, dict[str, Any]]]) -> dict[str, list[str]]:
    """In the form of `State.logical`."""
    return {
        name: sorted(
            json.dumps(row if "src" in row else {"id": key, **row}, sort_keys=True) for key, row in by_id.items()
        )
        for name, by_id in rows.items()
    }
