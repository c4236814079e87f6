"""The table history: the columns that tables had at each position of the binlog.

`model`, `sql`, `tables`, `storage` and `history` each may import those before it.
Leaves out how gaps are closed and where base dumps come from (`source.schema`).
"""
