"""Decodes binlog bytes into finished records: events, GTIDs, entries.

Uses `decoder.rows` and `decoder.text`; `engine` is the only entry point from Python.
Leaves out the network.
"""
