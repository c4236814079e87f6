"""Copying tables, beside the stream of changes."""
