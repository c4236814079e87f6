"""Which tables and columns are delivered: pure predicates, without threads or sockets.

Applying the filters is left to the stages that deliver or read rows, which import this.
"""
