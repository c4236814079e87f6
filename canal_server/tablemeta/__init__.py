"""The table history: the columns that tables had at each position of the binlog.

`model`, `sql`, `tables`, `storage` and `history` may each import the ones before it.
Closing gaps and reading base dumps from a server is the task of `source.schema`. Rooms
that read rows or show the history import this package.
"""
