"""`canal-server tail`: the command, its readers, and what it prints.

Connections to servers are in `client`. Only `cli` imports this package.
"""
