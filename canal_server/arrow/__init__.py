"""Entries and results of SELECT as columns of Arrow, compiled.

Uses `decoder` for values. Leaves out Arrow's own library and Spark: `spark` and
`mirror` take the buffers from here.
"""
