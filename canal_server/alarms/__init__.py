"""Alarms: what an operator must know at once, sent to the log and elsewhere.

They are made of the readings of destinations (`canal_server.observe`). Only the daemon
may import this package.
"""
