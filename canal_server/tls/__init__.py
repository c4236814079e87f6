"""TLS of the server's ports, of clients and to sources: certificates, stores, contexts.

Leaves out encrypted streams, which each side has, and who may log in.
"""
