"""Messages for queues: canal-json from entries, and the topics that they go to.

Leaves out where entries come from. Handlers of `client` and the command line import it.
"""
