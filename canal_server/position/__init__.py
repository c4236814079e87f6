"""Positions of clients and of the pump, and their storage in files and ZooKeeper.

Leaves out who may write to ZooKeeper (`ha`), and where reading begins (`source.begin`).
`catchup`, `instance`, `daemon` and `cli` import it.
"""
