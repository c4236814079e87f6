"""Values that travel between the stages: frozen, slotted, without behaviour.

Clients, positions, batches, ranges, and the names and contents of ZooKeeper nodes.
GTID sets are in `core.gtid`, connections in `mysql`. Every package may import it.
"""
