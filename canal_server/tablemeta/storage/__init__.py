"""Storages of the table history: SQLite, MySQL, and the tables of the Java server.

The meaning of the statements is left to `history`, which imports it.
"""
