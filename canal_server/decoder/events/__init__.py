"""From the bytes of the binlog to finished records: events, GTIDs, entries.

Uses `decoder.rows` and `decoder.text`; `engine` is the one door from Python.
"""
