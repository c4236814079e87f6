"""Messages for queues: canal-json from entries, and the topics that they go to.

Leaves out where entries come from. `instance` and the command line import it.
"""
