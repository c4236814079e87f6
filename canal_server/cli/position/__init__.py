"""`canal-server position …`: one module per action.

Searching positions is the task of `source.begin`. Only `cli` imports this package.
"""
