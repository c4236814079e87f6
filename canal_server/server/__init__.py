"""The TCP server: the listener, a thread per client, and what requests do."""
