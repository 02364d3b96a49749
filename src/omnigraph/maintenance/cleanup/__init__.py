"""Cleanup: remove versions that are not needed any more and files of crashed writers. It plans before it removes.

1. refuse   if an operation of a crashed writer is undecided, a table has drift, a version that a live branch pins
            can't be opened, or a fork refers to another address (GraphMoved): nothing is removed
2. plan     per table folder: forks that can't be read again, versions that the policy releases and that are not
            retained, files that only those refer to, old files that no version refers to (`plan`,
            `retained_versions`, `orphans`), query arrays built from them (`caches`). A preview ends here
3. execute  announce, read again, remove (`execute`); on a full disk with the reserve (`space`)

The manifest's own versions are removed as well: only the oldest ones, never those of the newest days. A writer that
is stopped inside its swap is refused because of the versions that came since.

Keeps: everything that a live branch, the commit it was made from, a merge base, a tag of Lance or a reader's lease
needs; the newest version of every version line; everything above a published version. One failing table does not stop
the others: its row has the error. A crash leaves more to remove; no version that anything pins is left incomplete.
"""

from omnigraph.maintenance.cleanup.document import CleanupResult
from omnigraph.maintenance.cleanup.plan import CleanupPlan
from omnigraph.maintenance.cleanup.policy import Policy, Rule, make_policy
from omnigraph.maintenance.cleanup.run import cleanup, plan_cleanup

__all__ = ["CleanupPlan", "CleanupResult", "Policy", "Rule", "cleanup", "make_policy", "plan_cleanup"]
