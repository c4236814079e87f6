"""Doors to foreign systems: SQLite, ZooKeeper, sqlglot, web services; a module each.

Code that needs a foreign system imports its door; only the door imports the library.
Leaves out what is stored there.
"""
