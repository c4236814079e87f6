"""`canal-server position …`: one module per action."""
