"""`canal-server subscriptions …`: one module per action.

Ranged reads themselves are in `ranges`. Only `cli` imports this package.
"""
