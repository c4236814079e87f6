"""Compares source tables with their copies at one position.

Holds the comparison and its report. Leaves out how copies are written (`lake`, `copy`).
Only the command line imports it.
"""
