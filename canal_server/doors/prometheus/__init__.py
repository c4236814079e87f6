"""The door to Prometheus: metrics as values, as text, and at an HTTP port.

What is measured is decided by `observe` (a server), `mirror` and `spark` (a query).
"""
