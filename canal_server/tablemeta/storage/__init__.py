"""Where the table history is kept: SQLite, MySQL, and the tables of Java's server."""
