"""Ranged reads: binlog ranges that can be read repeatedly, and their readers' cursors.

Leaves out the service over TCP (`server.range_service`) and Spark. Imported by
`instance`, `daemon` and `cli`; the server sees it as a port only.
"""
