"""Ranged reads: binlog ranges that can be read repeatedly, and their readers' cursors.

Leaves out the service over TCP (`server.range_service`), which sees it as a port only,
and Spark.
"""
