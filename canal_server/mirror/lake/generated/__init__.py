"""Values of generated columns, computed from rows of the lake.

Leaves out the text of expressions (`ddl.generation`).
"""
