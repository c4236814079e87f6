"""Parses the text of a statement into operations on tables.

sqlglot is behind `doors.sqltext`; applying operations is the task of `tables`. Rooms
that need the kind of a statement may import it.
"""
