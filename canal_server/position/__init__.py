"""Positions of clients and of the pump, and their storage in files and ZooKeeper.

Acks arrive in `write_behind`; `file_meta` and `zookeeper_meta` store them, and
`log_positions` has the smallest cursor, at which reading resumes. Leaves out who may
write to ZooKeeper (`ha`), and where reading begins (`source.begin`).
"""
