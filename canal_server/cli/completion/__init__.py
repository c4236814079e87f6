"""`canal-server completion`: scripts with which shells complete the command.

`completion_tree` reads the parsers; one module per shell makes a script of what it
found. Nothing outside of `cli` imports this package.
"""
