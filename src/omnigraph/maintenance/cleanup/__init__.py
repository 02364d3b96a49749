"""Cleanup: remove versions that nobody needs any more, and what dead writers left. Destructive, and so a plan first.

1. refuse   an operation of a dead writer is undecided, a table has uncovered drift, a version that a live branch
            stands on can't be opened, a fork refers to another place (GraphMoved): nothing is touched
2. plan     per table folder: forks that nobody can read again, versions that the policy lets go and no floor holds,
            files that only those refer to, files that no version refers to and that are old (`plan`, `floors`,
            `orphans`), arrays of queries that were made from them (`caches`). A preview ends here: it is the plan
3. execute  announce, look again, remove (`execute`); on a full disk with the space that is kept for it (`space`)

The manifest's own versions are collected as well, the oldest ones only, and never the newest days of them: a writer
that is stopped inside its swap is refused through the versions that came since.

Keeps: everything that a live branch, the commit it was made from, a merge base, a tag of Lance or a reader's lease
needs; the newest version of every line; everything above a published version. One failing table does not stop the
others: its error stands in its row. A crash leaves more to remove, and nothing half readable that anybody stands on.
"""

from omnigraph.maintenance.cleanup.document import CleanupResult
from omnigraph.maintenance.cleanup.plan import CleanupPlan
from omnigraph.maintenance.cleanup.policy import Policy, Rule, make_policy
from omnigraph.maintenance.cleanup.run import cleanup, plan_cleanup

__all__ = ["CleanupPlan", "CleanupResult", "Policy", "Rule", "cleanup", "make_policy", "plan_cleanup"]
