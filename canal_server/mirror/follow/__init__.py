"""Changes on their way into the lake: rows, DDL, foreign keys, micro-batches."""
