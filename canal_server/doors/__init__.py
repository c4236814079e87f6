"""Doors to foreign systems: SQLite, ZooKeeper and sqlglot, one module or package each.

Who needs the foreign system imports its door; nobody else imports the library.
"""
