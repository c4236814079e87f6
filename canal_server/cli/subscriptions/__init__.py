"""`canal-server subscriptions …`: one module per action."""
