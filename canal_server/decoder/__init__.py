"""From the bytes of a binlog to blocks of entries, compiled.

`text` (values), `rows` (row images) and `events` (framing, statements, entries): each
may import those before it. Leaves out sockets, and how columns are known.
"""
