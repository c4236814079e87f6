"""Exchanges of rows between two tables of the lake.

Leaves out the statements that ask for them (`mirror.follow`).
"""
