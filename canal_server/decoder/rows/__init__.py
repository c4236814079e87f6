"""Row images: table maps, the layout of a table's rows, rows as columns.

Uses `decoder.text`. Leaves out the events around them (`decoder.events`).
"""
