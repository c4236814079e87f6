"""The wire protocol without sockets: messages, frames, login, session rules.

Connections are in `server` and `client`, which import it, like every package above.
"""
