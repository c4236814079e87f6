"""Starting, stopping and waiting, for every stage: nothing here knows what is run.

Every package may import it.
"""
