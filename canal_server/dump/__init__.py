"""Receiving and decoding as one engine, and the search for where it begins."""
