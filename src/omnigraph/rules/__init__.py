"""Rules: what a row of a graph must keep to. Each rule is defined once, with the one builder of its message.

| rule          | module      | meaning                                                                               |
|---------------|-------------|---------------------------------------------------------------------------------------|
| record        | –           | the line or row is no record: not JSON, not an object, a member twice, unknown type,  |
|               |             | wrong envelope (`write/envelope` and the readers of tables, which define their form)   |
| unknown_field | –           | a field that the type does not have, or a reserved one (`write/envelope`)              |
| type          | –           | a value of another type than declared, out of range of its type, or a date that does  |
|               |             | not exist                                                                             |
| null          | fields      | a required property is null or absent                                                 |
| list          | –           | a list with a null or with an item of the wrong type                                  |
| vector        | –           | a vector of the wrong length, or with a member that is not a finite number            |
| enum          | fields      | a string that is not among the values of the enum                                     |
| range         | fields      | a number outside of @range                                                            |
| check         | fields      | a string that does not match the @check pattern                                       |
| key           | identity    | a @key twice in one write, a key that exists in a strict insert, a change of a key    |
|               |             | property                                                                              |
| id            | identity    | an id that is not the one of the key, not a string, twice in one write, or existing   |
|               |             | in an insert                                                                          |
| unique        | unique      | another row has the values of a @unique tuple                                         |
| endpoint      | endpoints   | an edge without its node: `from`/`to` missing, unknown, or a node removed under a     |
|               |             | kept edge                                                                             |
| cardinality   | cardinality | a source node with more or fewer edges than @card allows                              |

The types of values are defined by the converters of `write/values.py`.

A builder returns a `Problem`: rule, message, property. Its caller adds type, id, line and source of the row: that is
a `Violation`. Small writes, bulk loads and merges report violations; verify reports findings about whole tables.
"""

from __future__ import annotations

RULES = (
    *("record", "unknown_field", "type", "null", "list", "vector", "enum", "range", "check"),
    *("key", "id", "unique", "endpoint", "cardinality"),
)
