"""Positions of clients and of the pump, and their storage in files and ZooKeeper.

Acks arrive in `stored_meta`; `file_meta` and `zookeeper_meta` store them, and
`log_position_managers` has the smallest cursor, at which reading resumes. Leaves out
who may write to ZooKeeper (`ha`), and where reading begins (`source.begin`).
"""
