"""Reads rows of the source's tables: chunks, single rows, and their binlog positions.

Leaves out what is done with the rows. `copy`, `follow`, `run` and `verify` import it.
"""
