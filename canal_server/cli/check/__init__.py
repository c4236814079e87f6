"""`canal-server check`: whether everything that must hold before a start holds.

Checks of a source are in `source.check`; here are those of this machine, and the
command. Nothing imports this room.
"""
