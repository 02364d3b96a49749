"""Bulk load: any amount of input, validated as a whole, published as one graph commit. All work is tasks on a runner.

1. cut       the inputs into pieces: byte ranges of lines, row groups, fragments; large packed files are unpacked first
2. read      per piece: parse, type, check what a row shows by itself; stage the rows of each type, and the digests of
             what is looked up (ids, endpoints, unique tuples), cut into buckets
3. existing  per group of fragments of the pinned tables that checks need: the same digests of existing rows
4. check     per bucket: ids twice, ids that exist, endpoints, unique tuples, cardinality
5. compare   in `merge`, per piece: rows that are equal to their rows in the graph are dropped
6. resolve   with quarantine: rows that break a rule are removed, and edges that lose their node by that, until the rest
             is valid; without quarantine the same is done to count them, and they refuse the load
7. write     per group of pieces: fragments of new rows, fragments of replaced rows with their row ids; per fragment of
             the old table: which rows are deleted
8. commit    one stamped transaction or two per table, through the committer

Rows never pass the driver: it has the names of staged files, counts, and the first violations. A digest is 128 bits:
where a row is refused or replaced because it equals another, their texts are compared; "the endpoint exists" is decided
by the 128 bits alone.

The refused rows, the messages and their order are those of the in-memory load (`pipeline.load`, `write.load`); a random
test compares both.

What a crash leaves: staged files under `__staging/<job>`, which the next load removes once their owner is gone, and
orphan files. The graph is unchanged until step 8.
"""
