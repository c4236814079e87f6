"""What operations make of tables: schemas in memory, keys, and differences."""
