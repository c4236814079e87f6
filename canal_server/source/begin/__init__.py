"""Where in a binlog reading starts: positions, times, GTID sets, purged files.

Leaves out reading itself (`source.read`) and the tables' columns at that position
(`source.schema`). Imported by the pump and by the packages above `source`.
"""
