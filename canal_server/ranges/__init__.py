"""Ranged reads: ranges of a binlog that can be read again, and their readers' cursors.

Leaves out the service over TCP (`server.range_service`) and Spark.
"""
