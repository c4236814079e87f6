"""Which tables and columns are delivered: pure predicates, without threads or sockets.

Imported by everything that delivers or reads rows.
"""
