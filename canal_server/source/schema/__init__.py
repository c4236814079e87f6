"""The schemas of tables at the positions that are read, from the table history.

Leaves out the history itself (`tablemeta`) and where reading starts (`source.begin`).
Imported by `source.begin`, the pump and the packages above `source`.
"""
