"""`canal-server schema …`: one module per action."""
