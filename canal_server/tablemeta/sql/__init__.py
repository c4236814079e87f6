"""From the text of a statement to operations on tables.

sqlglot is behind `doors.sqltext`. Leaves out what operations do to a table.
"""
