"""Decodes the bytes of a binlog into blocks of entries; compiled.

`text` (values), `rows` (row images) and `events` (framing, statements, entries): each
may import those before it. Leaves out sockets, and where table schemas come from.
"""
