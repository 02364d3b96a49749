"""Read queries on Spark: a checked query becomes one DataFrame, rows and order as in this process.

1. tables    each type at the pinned commit is read by the data source `omnigraph`; conditions that Lance answers are
             passed as filters (`tables`)
2. patterns  bound rows are a DataFrame; scans, traversals and blocks are joins (`match`, `walk`)
3. values    what Spark computes as the language defines it is a Column; everything else is evaluated by
             `execution.evaluate`, on the executors, in Arrow batches (`values`), so there is only one definition
4. results   groups, having, total order, offset and limit, columns (`results`, `aggregate`)

| in the rows    | holds                                                                                 |
|----------------|---------------------------------------------------------------------------------------|
| `v7`           | the entity of slot 7: struct of `id` and `type` (the ordinal of its type); or null    |
| `v7` of a path | array of such structs, from end to end                                                |
| `p7_0`         | the first of the columns of slot 7 that the query reads                               |

Entities compare and sort as these structs do: by id, then by type. Searches are refused. PySpark is imported only in
this package. Nothing is written; a traversal of many hops stores its rounds on the executors until the DataFrame is
garbage-collected.
"""
