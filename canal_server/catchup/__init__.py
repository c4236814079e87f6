"""Lagging clients: a reader of their own each, until it meets the ring of the store."""
