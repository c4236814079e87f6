"""Doors to foreign systems: SQLite, ZooKeeper, sqlglot, Prometheus, YAML, web services.

Code that needs a foreign system imports its door; only the door imports the library.
Leaves out what is stored there.
"""
