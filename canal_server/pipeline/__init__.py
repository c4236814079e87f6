"""Whole transactions on their way to the store.

The ring buffer, the sink with its filter of empty transactions, and the merge of
several sources. Reading is in `source`, serving in `store`.
"""
