"""Whether a source can be captured: facts that are read, and verdicts about them.

For the start of a destination and for `canal-server check`. Each check of a fact is a
small function without a connection, so that it can be tested with plain values. When a
source is checked is up to `source.pump` and `cli.check`, which import this room.
"""
