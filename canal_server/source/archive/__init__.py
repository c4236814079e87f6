"""Binlog files in a directory, read as if the server still had them.

A dump of a purged part begins in the archive and continues on the server. Everything
that reads a binlog opens its dumps here and lists the files here; it does not see where
the bytes come from. Leaves out what the events mean (`source.read`).
"""
