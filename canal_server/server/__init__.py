"""The TCP server: the listener, a thread per client, and what requests do.

Leaves out the bytes of the protocol (`protocol`) and the stores and instances, which
are known as ports only. `daemon` imports it.
"""
