"""Embed: fill `Vector` properties that are declared `@embed("source")` from the text of their source.

1. choose   the properties, and per property the provider and model; what does not fit the schema is refused here
2. survey   per group of fragments: how many rows need a vector, and where they are (`tasks.survey`)
3. embed    per some thousand rows: request vectors, stage (row address, vector, mark) (`tasks.embed_chunks`)
4. write    per fragment: one more data file with the new vectors and marks (`tasks.write_files`)
5. commit   through the committer, all types in one commit; 3 to 5 are repeated for every `commit_every` rows

Which rows: those with a text whose vector is missing, and those whose vector was made from another text than the row
has now. The embedding mark, a hidden column, records what a vector was made from (`storage/lance/embedding_marks.py`).
A text that is null or blank has no vector: one that was made from an earlier text of that row is removed.

Invariant: a row never has a vector of an older text with a mark of the new one, whatever concurrent writers do. The
texts are read at one pinned version; in 4 and 5 a row that others have replaced is deleted at its old address, and gets
no vector. When the commit is prepared again, no vector is requested again: 4 runs again for the fragments that changed,
and rows that moved elsewhere get their vectors from the staged ones by their digests.

What a crash leaves: the commits that were made, staged files that the next run removes, and orphan files. Running embed
again does the rest.
"""
