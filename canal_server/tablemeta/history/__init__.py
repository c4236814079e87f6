"""The table history by position: the TSDB, its replay, the change log of a table.

Storing it is the task of `storage`. Rooms outside `tablemeta` use mainly this one.
"""
