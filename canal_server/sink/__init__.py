"""What is let through to the store: tables, columns, transactions with content."""
