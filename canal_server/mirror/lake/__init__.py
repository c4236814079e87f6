"""Tables in the lake, whatever their format: what they can, their files and rows."""
