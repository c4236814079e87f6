"""How rows become instances of classes: annotations, and kinds of classes."""
