"""Sends the changes of destinations to a message queue, as `canal.serverMode` asks.

Leaves out what messages are and how brokers are spoken to (`queues`). `daemon` imports
it, and `observe` the states.
"""
