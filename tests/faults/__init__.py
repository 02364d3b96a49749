"""Fault injection: every storage request and every file system call of every verb is killed, failed, lost or frozen.

s3store     what S3 does, as a pure function on a dictionary of immutable objects
s3server    the same behind HTTP on the loopback, with the faults inside
forkserver  client processes: one fork per job of a process that has imported everything and used nothing
localdisk   for a local directory: mutating system calls are counted, killed, torn, failed
powerloss   what of a local directory would not survive a power failure
verbs       the one list of operations under test; a new verb joins by one line
scenes      the small graph they are tried on, and what the oracle expects of it
jobs        what runs inside a client process
oracle      what may be there afterwards, and the judgement
s3bench     stages a verb on the S3 server, strikes it, collects the evidence; diskbench the same on a directory
once        values that are worked out once, by whichever thread needs them first
runner      counts an operation's requests, then runs it once per request and fault; also the command line
"""
