# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Topics and partitions of tables, for the encoders of messages.

Which route a table has is left to `routing`.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from canal_server.core.entry_wire cimport Slice

cdef enum:
    TABLES_MAX = 10_000     # whose routes are kept


cdef class Route:
    """Where messages of a table go, and which partition of it each row does.

    `columns`: names in lower case, for HASH_COLUMNS.
    """

    def __init__(self, str topic, *, int mode=NO_HASH, uint32_t partitions=1,
                 uint32_t partition=0, tuple columns=(), str hashed=""):
        """Set the topic; `hashed`: the text whose hash that of the values starts with."""
        self.topic, self.mode = topic, mode
        self.partitions, self.partition = max(partitions, 1), partition
        self.columns = columns
        cdef bytes text = hashed.encode(errors="replace")
        cdef Slice slice
        slice.p, slice.n = <const uint8_t*>PyBytes_AS_STRING(text), len(text)
        self.begin = java_hash(slice)

    cdef bint names(self, Slice column) except -1:
        return column.p[:column.n].decode(errors="replace").lower() in self.columns


cdef class Routes:
    """The routes of tables; `route_of(schema, table)` is asked once for each."""

    def __init__(self, route_of):
        """Set the function that knows the routes."""
        self.route_of = route_of
        self.known = {}

    cdef Route find(self, Slice schema, Slice table):
        cdef bytes key = schema.p[:schema.n] + b"\0" if schema.n else b"\0"
        if table.n:
            key += table.p[:table.n]
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= TABLES_MAX:
                self.known.clear()
            schema_name, _, name = key.decode(errors="replace").partition("\0")
            found = self.known[key] = self.route_of(schema_name, name)
        return found


cdef int32_t java_hash(Slice text) noexcept nogil:
    """Return the hash that Java gives a string of this UTF-8."""
    cdef uint32_t found = 0
    cdef uint32_t code
    cdef const uint8_t* p = text.p
    cdef const uint8_t* end = p + text.n
    while p < end:
        code = p[0]
        if code < 0x80:
            p += 1
        elif code < 0xE0:
            code = (code & 0x1F) << 6 | p[1] & 0x3F
            p += 2
        elif code < 0xF0:
            code = (code & 0x0F) << 12 | (p[1] & 0x3F) << 6 | p[2] & 0x3F
            p += 3
        else:
            code = ((code & 0x07) << 18 | (p[1] & 0x3F) << 12 | (p[2] & 0x3F) << 6
                    | p[3] & 0x3F) - 0x10000
            found = 31 * found + (0xD800 | code >> 10)
            code = 0xDC00 | code & 0x3FF
            p += 4
        found = 31 * found + code
    return <int32_t>found


cdef uint32_t partition_of(int32_t hashed, uint32_t count) noexcept nogil:
    """Return `abs(abs(hash) % count)` as Java computes it."""
    cdef int32_t least = <int32_t>0x80000000
    cdef int64_t value = hashed if hashed == least or hashed >= 0 else -<int64_t>hashed
    value = value % <int64_t>count
    return <uint32_t>(-value if value < 0 else value)
