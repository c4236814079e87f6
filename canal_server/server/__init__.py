"""The TCP server: the listener, a thread per client, and what requests do.

Limits on connections are in `admission`, what a login must be in
`protocol.server_session`, and `refusal_log` logs what was refused. Leaves out the bytes
of the protocol (`protocol`) and the stores and instances, which are known as ports
only.
"""
