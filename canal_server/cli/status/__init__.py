"""`canal-server status`: the command, its checks, its texts.

The state comes from the control socket of `daemon`. Only `cli` imports this package.
"""
