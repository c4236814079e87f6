"""What the program logs at WARNING and ERROR, and what its errors mean to an operator.

Each message has a name. `message_areas` lists all of them, the modules `…_notes` have
the notes on errors; the reference is made from both.
"""
