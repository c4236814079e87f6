"""Runs a mirror: tables to mirror, their copies, and the stream.

Holds the main loop, the start of each table, progress and `mirror status`. Leaves out
how rows are copied (`copy`) and applied (`follow`). Only the command line and `verify`
import it.
"""
