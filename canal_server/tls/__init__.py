"""TLS of the server's ports and of clients: certificates, contexts, encrypted streams.

Leaves out TLS of connections to MySQL, which `mysql` has, and who may log in.
"""
