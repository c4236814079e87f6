"""The consumer: gives the changes of a client to a handler, and acks what is done.

::

    import contextlib

    from canal_server.client import CanalClient
    from canal_server.client.consume import Consumer

    def handle(change):
        print(change.kind, change.table, change.after)

    consumer = Consumer(handle)
    client = CanalClient(ack="manual", on_redelivery=consumer.forget)
    with contextlib.closing(client):
        consumer.run(client)

`canal-server consume` is this as a command. What handlers look like is in
`canal_server.client.handlers`.
"""

from __future__ import annotations

from canal_server.client.consume.consumer import Consumer, HandlerFailed
from canal_server.client.consume.dead_letters import DeadLetters

__all__ = ["Consumer", "DeadLetters", "HandlerFailed"]
