"""`canal-server consume`: run a handler over the changes of a destination.

The work is done by `canal_server.client.consume`. Only `cli` imports this package.
"""
