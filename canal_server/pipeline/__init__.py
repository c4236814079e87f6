"""Whole transactions on their way to the store.

The ring buffer, the sink with its thinning, and the merge of several sources. Leaves
out reading (`source`) and serving (`store`).
"""
