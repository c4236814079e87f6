"""The results of operations on tables: schemas in memory, keys, and differences.

Storing them is left to `storage`. `history` and rooms that verify schemas import it.
"""
