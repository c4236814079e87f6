# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""GTID sets of MariaDB: one position per replication domain.

Text is canonical: sorted by domain, no blanks. A set belongs to one thread at a
time; other threads get copies.
"""

import struct

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcpy

from canal_server.core.digits cimport put_u32, put_u64
from canal_server.core.gtid.gtid_text cimport GtidText, with_gap

cdef enum:
    DOMAIN_TEXT_MAX = 43  # 10 + 1 + 10 + 1 + 20 and a comma


cdef struct Listed:
    # A domain of a GTID_LIST event, and its index in the list.
    uint32_t domain
    uint32_t at


cdef int by_domain(const void* one, const void* other) noexcept nogil:
    cdef const Listed* a = <const Listed*>one
    cdef const Listed* b = <const Listed*>other
    if a.domain != b.domain:
        return (a.domain > b.domain) - (a.domain < b.domain)
    return (a.at > b.at) - (a.at < b.at)


cdef class MariaGtidSet(GtidText):
    """The position of each replication domain of MariaDB: `domain-server-sequence`.

    It contains another set when it is at or after that in each of its domains.
    """

    def __dealloc__(self):
        free(self.domains)

    @classmethod
    def parse(cls, str text):
        """Read `domain-server-sequence,…`; the last one counts of a repeated domain.

        Raises ValueError that names the invalid item.
        """
        cdef MariaGtidSet found = cls()
        for item in text.split(","):
            if not item.strip():
                continue
            numbers = [part.strip() for part in item.split("-")]
            if len(numbers) != 3 or not all(
                part.isascii() and part.isdecimal() for part in numbers
            ):
                raise ValueError(
                    f"not a GTID: {item.strip()!r}, expected domain-server-sequence"
                )
            found.update(*map(int, numbers))
        return found

    @classmethod
    def decode_gtid_list(cls, const uint8_t[::1] body):
        """Read the body of a GTID_LIST event (without checksum).

        A hostile source may send the domains in any order: they are sorted once. The
        last one counts of a repeated domain. Raises ValueError when it is truncated.
        """
        cdef MariaGtidSet found = cls()
        cdef uint32_t count = 0
        cdef uint32_t i
        cdef Listed* listed
        if body.shape[0] >= 4:
            memcpy(&count, &body[0], 4)
            count &= 0x0FFFFFFF  # above that: flags
        if body.shape[0] < 4 + 16 * <Py_ssize_t>count:
            raise ValueError(f"a GTID list is truncated after {len(body)} bytes")
        if count == 0:
            return found
        listed = <Listed*>malloc(count * sizeof(Listed))
        if listed == NULL:
            raise MemoryError("no memory for a GTID set")
        try:
            for i in range(count):
                memcpy(&listed[i].domain, &body[4 + 16 * <Py_ssize_t>i], 4)
                listed[i].at = i
            qsort(listed, count, sizeof(Listed), by_domain)
            for i in range(count):
                if i + 1 == count or listed[i + 1].domain != listed[i].domain:
                    found.update(*struct.unpack_from(
                        "<IIQ", body, 4 + 16 * <Py_ssize_t>listed[i].at
                    ))
        finally:
            free(listed)
        return found

    def update(self, domain, server, sequence):
        """Set a domain's position. Raises ValueError for numbers out of range."""
        if max(domain, server) >> 32 or sequence >> 64 or min(
            domain, server, sequence
        ) < 0:
            raise ValueError(f"not a GTID: {domain}-{server}-{sequence}")
        if self.update_c(domain, server, sequence) != 0:
            raise MemoryError("no memory for a GTID set")

    cdef uint32_t index_of(self, uint32_t domain) noexcept nogil:
        """Return the index of the domain, or of the next one."""
        cdef uint32_t low = 0
        cdef uint32_t high = self.count
        cdef uint32_t middle
        while low < high:
            middle = (low + high) // 2
            if self.domains[middle].domain < domain:
                low = middle + 1
            else:
                high = middle
        return low

    cdef int update_c(self, uint32_t domain, uint32_t server,
                      uint64_t sequence) noexcept nogil:
        cdef uint32_t i = self.index_of(domain)
        cdef Domain* memory
        if i == self.count or self.domains[i].domain != domain:
            memory = <Domain*>with_gap(self.domains, sizeof(Domain), self.count,
                                       &self.capacity, i)
            if memory == NULL:
                return -1
            self.domains = memory
            self.count += 1
        self.domains[i].domain = domain
        self.domains[i].server = server
        self.domains[i].sequence = sequence
        self.rendered = False
        return 0

    cdef size_t text_room(self) noexcept nogil:
        return self.count * DOMAIN_TEXT_MAX

    cdef uint8_t* put_text(self, uint8_t* p) noexcept nogil:
        cdef uint32_t i
        for i in range(self.count):
            if i:
                p[0] = 44
                p += 1
            p = put_u32(p, self.domains[i].domain)
            p[0] = 45
            p = put_u32(p + 1, self.domains[i].server)
            p[0] = 45
            p = put_u64(p + 1, self.domains[i].sequence)
        return p

    def union(self, MariaGtidSet other not None):
        """Return the set with the later position of both in each domain."""
        cdef MariaGtidSet found = type(self)()
        cdef MariaGtidSet source
        cdef Domain* one
        cdef uint32_t i, j
        for source in (self, other):
            for i in range(source.count):
                one = &source.domains[i]
                j = found.index_of(one.domain)
                if (
                    j == found.count
                    or found.domains[j].domain != one.domain
                    or found.domains[j].sequence < one.sequence
                ):
                    found.update(one.domain, one.server, one.sequence)
        return found

    cdef bint reaches(self, const Domain* one) noexcept nogil:
        """Return whether this set is at or after a domain's position."""
        cdef uint32_t i = self.index_of(one.domain)
        return (
            i < self.count
            and self.domains[i].domain == one.domain
            and self.domains[i].sequence >= one.sequence
        )

    def subtract(self, MariaGtidSet other not None):
        """Return the domains in which this set is further than the other."""
        cdef MariaGtidSet found = type(self)()
        cdef Domain* one
        cdef uint32_t i
        for i in range(self.count):
            one = &self.domains[i]
            if not other.reaches(one):
                found.update(one.domain, one.server, one.sequence)
        return found

    def beside(self, MariaGtidSet other not None):
        """Return the domains that another set does not know."""
        cdef MariaGtidSet found = type(self)()
        cdef uint32_t i, j
        for i in range(self.count):
            j = other.index_of(self.domains[i].domain)
            if j == other.count or other.domains[j].domain != self.domains[i].domain:
                found.update(self.domains[i].domain, self.domains[i].server,
                             self.domains[i].sequence)
        return found

    def contains(self, MariaGtidSet other not None):
        """Return whether this set is at or after the other in all its domains."""
        cdef uint32_t i
        for i in range(other.count):
            if not self.reaches(&other.domains[i]):
                return False
        return True

    def encode(self):
        """Return the text for `slave_connect_state`, as bytes."""
        return str(self).encode("ascii")
