"""Doors to foreign systems: SQLite, ZooKeeper and sqlglot, one module or package each.

Code that needs a foreign system imports its door; only the door imports the library.
Leaves out what is stored there.
"""
