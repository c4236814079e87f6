"""Turns entries and results of SELECT into columns in Arrow's layout; compiled.

Uses `decoder` for values. Leaves out Arrow's own library and Spark, whose packages wrap
the buffers.
"""
