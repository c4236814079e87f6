"""Connections to a MySQL or MariaDB server: the one package that knows PyMySQL.

Leaves out what is read from them: events (`decoder`) and where to start (`source`).
"""
