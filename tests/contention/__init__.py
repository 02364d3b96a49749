"""Many processes on one graph, stopped, killed and continued at the worst moments.

world       the schema they write to, and the rules that every snapshot of it must obey
processes   client processes, forked from one that has imported everything and used nothing
clients     what runs inside such a process
crowd       starts clients, stops, kills and continues them, keeps the record of all that
audit       what must be true afterwards
soak        the long random attack: `python -m tests.contention.soak --minutes 10 --seed 1`
"""
