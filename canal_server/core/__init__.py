"""Compiled values shared by the stages: blocks of entries, GTID sets, table ids.

Nothing here knows MySQL's connection or canal's configuration. Every package but
`model`
may import it.
"""
