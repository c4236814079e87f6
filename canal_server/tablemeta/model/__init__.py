"""Values of the table history: table schemas, operations, types, labels of ENUM."""
