"""One read of a binlog: from a server or from files, event by event, to an end.

Leaves out where reading starts (`source.begin`), the table history (`source.schema`)
and the pump. Imported by the other parts of `source` and by every package above it.
"""
