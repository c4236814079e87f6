"""`canal-server user …`: one module per action.

The file and its rights are in `users`. Only `cli` imports this package.
"""
