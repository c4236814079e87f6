"""Lagging clients: each is served by a reader, until the handoff to the ring.

Who lags is decided by `position.presence`; serving requests is in `server`.
"""
