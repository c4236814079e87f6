"""The schemas of tables at the positions that are read, from the table history."""
