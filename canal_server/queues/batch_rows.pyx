# cython: language_level=3
"""What is raised about malformed entries; the columns are read in `batch_rows.pxd`."""

from canal_server.errors import ProtocolError


cdef int check(bint is_right) except -1:
    if not is_right:
        raise ProtocolError("malformed entry in a batch")
    return 0
