"""The event store: one ring of an instance's entries and a cursor per client.

Leaves out where cursors are persisted (`position`) and who is evicted (`catchup`).
"""
