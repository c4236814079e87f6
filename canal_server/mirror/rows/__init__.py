"""Rows of the source's tables: chunks of them, single rows, and their positions."""
