"""Doors to foreign systems, such as SQLite, ZooKeeper, PyMySQL and web services.

Code that needs a foreign system imports its door; only the door imports the library.
Leaves out what is stored there.
"""
