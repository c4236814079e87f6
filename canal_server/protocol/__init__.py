"""The wire protocol without sockets: messages, frames, log-in, session rules."""
