"""Values of the table history: table schemas, operations, types, labels of ENUM.

Parsing and applying statements is left to `sql` and `tables`. Any room may import it.
"""
