"""Bulk load: any amount of input, validated as a whole, published as one graph commit. All work is tasks on a runner.

1. cut       the inputs into pieces: byte ranges of lines, row groups, fragments; large packed files are unpacked first
2. read      per piece: parse, type, check what a row shows by itself; stage the rows of each type, and the digests of
             what is looked up (ids, endpoints, unique tuples), cut into buckets
3. existing  per group of fragments of the pinned tables that matter: the same digests of what the graph holds
4. check     per bucket: ids twice, ids that exist, endpoints, unique tuples, cardinality
5. compare   in `merge`, per piece: rows that the graph has exactly so are dropped
6. settle    with quarantine: rows that break a rule go, and what that orphans, until the rest is valid; without it
             the same is done to count them, and they refuse the load
7. write     per group of pieces: fragments of new rows, fragments of replaced rows with their row ids; per fragment of
             the old table: which rows are deleted
8. commit    one stamped transaction or two per table, through the door

Rows never pass the driver: it holds names of staged files, counts, and the first violations. A digest is 128 bits:
that two rows are one is proven by their text where anything is refused or replaced for it, and "the endpoint exists"
rests on the 128 bits.

The verdicts, the wording and the order of reasons are those of the in-memory load (`pipeline.load`, `write.load`), and
a test holds both to it.

What a crash leaves: staged files under `__staging/<job>`, which the next load removes once their owner is gone, and
data files that nobody refers to. The graph is untouched until step 8.
"""
