"""GTID sets of MySQL and of MariaDB, compiled.

A set has one text, by which it is compared. Leaves out what a session does with a set.
Every layer above `model` may import it.
"""
