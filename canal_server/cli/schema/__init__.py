"""`canal-server schema …`: one module per action.

The table history itself is in `tablemeta`. Only `cli` imports this package.
"""
