"""Embed: fill `Vector` properties that are declared `@embed("source")` from the text of their source.

1. choose   the properties, and per property the provider and model; what does not fit the schema is refused here
2. survey   per group of fragments: how many rows need a vector, and where they are (`work.survey`)
3. embed    per some thousand rows: ask the provider, stage (row address, vector, mark) (`work.embed_chunks`)
4. write    per fragment: one file with the new vectors and marks, beside the fragment's own (`work.write_files`)
5. commit   through the door, all types together; 3 to 5 are repeated for every `commit_every` rows

Which rows: those with a text whose vector is missing, and those whose vector was made from another text than the row
has now. A hidden column of the row records what its vector was made from (`storage/lance/embedding_marks.py`). A text
that is null or blank has no vector: one that was made from an earlier text of that row is taken away.

Keeps: a row never has a vector of an older text with a mark that says otherwise, whoever writes beside it. The texts
are read at one pinned version; in 4 and 5 a row that others have replaced is gone from its old place, and gets nothing.
Vectors that were paid for are not asked for again when the commit has to be prepared again: 4 runs anew for the
fragments that changed, and rows that moved elsewhere find their vectors among the staged ones by their digests.

What a crash leaves: the commits that were made, staged files that the next run removes, and data files that nobody
refers to. Running again does the rest.
"""
