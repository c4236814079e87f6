"""What the program logs at WARNING and ERROR, and what its errors mean to an operator.

Each message has a name. `message_areas` lists all of them, `note_pages` the notes on
errors; the reference is made from both.
"""
