"""`canal-server tail`: the command, and what it prints when."""
