"""Applies changes to the lake: rows, DDL, foreign keys, micro-batches of the stream.

Leaves out copies of whole tables (`copy`) and the files of the lake (`lake`). `run`,
`copy` and `verify` import it.
"""
