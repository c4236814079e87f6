"""The Spark session of a mirror: its options, executors, job slots and errors.

Leaves out what the jobs do. The other packages of `mirror` import it.
"""
