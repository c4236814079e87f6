"""One connection to a server: the conversation, and who carries it.

The conversation is written once, as steps; a socket that blocks or a stream of asyncio
carries them out. Leaves out everything that outlives a connection.
"""
