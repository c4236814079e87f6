"""Messages of the Python client; they are in the log of the program that uses it."""

from __future__ import annotations

from logging import WARNING

from canal_server.messages.message import Message

CLIENT_RECONNECTS = Message(
    name="client-reconnects",
    level=WARNING,
    text="destination %s: no connection to %s: %s; next attempt in %.1f s",
    meaning="A Python client lost its server, or did not reach it. It continues after"
    " its last ack when it is connected again; what it had not acked is delivered"
    " again.",
    remedy="Nothing, unless it stays: then see to the server, and to the address that"
    " the client was given.",
)
