"""Moves of clients to other positions of the binlog: what they do, as text and values.

The command `position` and the REST interface share it. Leaves out who carries a move
out: the running instance, or `canal_server.position.offline`.
"""
