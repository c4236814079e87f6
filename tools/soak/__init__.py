"""A long run of everything at once, with faults, and a ledger that nothing escapes.

::

    load ──> MySQL, its standby ──┐                ┌── clients, each with its checker
      │                           ├─ two servers ──┼── a Spark stream, checked too
      │──> MariaDB, its standby ──┘  + ZooKeeper   └── a mirror, whose lake is compared
      └──> ledger <───────────────────────────────────────────┘

`python -m soak --minutes 10 --seed 7`, in the folder `tools`; docs/howto/soak.md
shows how to read what it prints and draws.
"""
