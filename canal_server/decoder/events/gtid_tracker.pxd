# cython: language_level=3
"""The executed GTID set outside GTID mode; see gtid_tracker.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from canal_server.core.gtid.mysql_sets cimport GtidSet, TAG_BYTES_MAX
from canal_server.core.gtid.mariadb_sets cimport MariaGtidSet
from canal_server.decoder.rows.event_constants cimport Event

cdef class FollowedSet:
    cdef readonly bint active   # the set is tracked
    cdef GtidSet mysql          # both None: unknown
    cdef MariaGtidSet maria
    cdef bint lost              # the set can no longer be known

    # What is not in the set yet: of MySQL a run of numbers, of MariaDB the last number
    # in a domain.
    cdef uint64_t last          # the transaction that began last, 0: none
    cdef uint64_t first         # the start of the run that ends with it
    cdef uint64_t[2] sid        # 16 bytes
    cdef uint8_t[TAG_BYTES_MAX] tag
    cdef size_t tag_n
    cdef uint32_t domain
    cdef uint32_t server
    cdef uint64_t before        # the previous one in its domain, 0: none
    cdef uint32_t server_before

    # Begins a transaction; each returns 0, -1 for a broken event, -2 without memory.
    cdef int enter(self, const Event* event) noexcept nogil
    cdef int enter_maria(self, const Event* event) noexcept nogil

    cdef int begin_run(self, const uint8_t* sid, const uint8_t* tag, size_t tag_n,
                       uint64_t number) noexcept nogil
    # Adds what is not in the set yet; `whole`: with the transaction that began last.
    cdef int settle(self, bint whole) noexcept nogil
