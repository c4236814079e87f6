"""How rows become instances of classes: annotations, and kinds of classes.

Leaves out what programs see of it (`client.row_mapping`).
"""
