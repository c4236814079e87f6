"""Starting, stopping and waiting for every stage, retries, and private files.

Nothing here knows what is run. Every package may import it.
"""
