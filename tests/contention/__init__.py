"""Many processes on one graph, stopped, killed and continued at the worst moments.

world       the schema they write to, and the rules that every snapshot of it must obey
processes   client processes, forked from one that has imported everything and used nothing
clients     what runs inside such a process
keepers     the same for writers with a ledger, readers through indices, and maintenance beside them
crowd       starts clients, stops, kills and continues them, keeps the record of all that
audit       what must be true afterwards
soak        the long random attack: `python -m tests.contention.soak --minutes 10 --seed 1`
soak_maintenance  maintenance beside live writers and readers, for as long
"""
