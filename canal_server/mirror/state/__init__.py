"""What a mirror knows of its tables and copies, kept in files in the lake.

Holds the files' formats and the lease to write them. Leaves out the tables' data
(`lake`). The other packages of `mirror` import it.
"""
