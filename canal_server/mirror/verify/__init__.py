"""Comparing source and copy at one position."""
