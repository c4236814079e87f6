"""`canal-server mirror …`: the command, and its actions that only look."""
