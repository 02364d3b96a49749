"""Clone: a verified copy of a graph at another address, made beside its writers.

1. read      one version of the manifest defines what is cloned: the whole history, or one state of it (`plan`). A lease
             keeps cleanup away from every version that is copied. Later commits are not part of the clone
2. mark      the target is marked as an unfinished clone (`storage/objects/clone_mark.py`)
3. copy      data files, deletion files, indices; then the files of versions, rewritten for the new address:
             absolute addresses of forks name the target (`storage/files/rebase.py`), or forks become tables (`flatten`)
4. compare   every file exists with its size; other files of an earlier, stopped clone are removed. Checksums that
             the source's commits record hold for the clone; those of rewritten files are added
5. publish   the manifest's data, and last of all its version, create-only: from now on the clone is a graph,
             and of two concurrent clones one wins
6. verify    the clone, by its own address

The source is only read, except for the lease. Control objects, caches and staged files are not copied: a clone has no
writers. A clone of the history has the same commits, branches and versions; one of a state has one commit on main,
whose summary names its source.

A crash leaves a marked target without a manifest: it is refused as a graph, and the same call continues with what
is already copied. After step 5 it leaves a graph with a mark, which the same call removes.
"""

from omnigraph.maintenance.clone.run import CloneResult, Depth, clone_graph

__all__ = ["CloneResult", "Depth", "clone_graph"]
