"""Builds the pages of docs/reference that are generated from code."""
