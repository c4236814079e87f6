"""Decides who may run a destination: this server alone, or one of several by a lease.

Leaves out what running a destination means (`daemon`). `daemon` imports it, and
`cli.status` for its view of the cluster.
"""
