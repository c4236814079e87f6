"""Copies whole tables, in parallel with the stream of changes.

Holds the jobs that copy chunks, copies without a key, and reading what changed since a
copy began. Leaves out how chunks are cut (`rows`). `run` imports it.
"""
