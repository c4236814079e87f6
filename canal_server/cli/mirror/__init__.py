"""`canal-server mirror …`: the command, and its actions that only inspect a mirror.

The work is done by the package `mirror`. Only `cli` imports this package.
"""
