# cython: language_level=3
"""A stream of events; see event_stream.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from canal_server.decoder.rows.event_constants cimport Event
from canal_server.core.byte_buffer cimport Feed

cdef enum Standing:
    # Where `position` is. Unknown at the start of reading, until the first transaction
    # begins or ends.
    UNKNOWN = 0
    INSIDE = 1   # a transaction
    BETWEEN = 2  # two transactions


cdef class EventStream:
    cdef readonly Feed feed
    cdef readonly Feed inner          # events of a compressed transaction
    cdef bint packets
    cdef bint checksum
    cdef bint in_payload
    cdef bint answered                # the current event is finished
    cdef bint placed                  # the current event's end is known
    cdef Event event                  # the current event
    cdef Event outer                  # the payload event during its inner events
    cdef size_t event_bytes           # its size in its feed, framing included
    cdef size_t outer_bytes
    cdef size_t raw_n                 # bytes of the current event, header to checksum
    cdef size_t outer_raw_n
    cdef uint32_t ordinal             # of the current event in the payload
    cdef Standing standing            # at the end of the last event, set by the subclass
    cdef uint64_t limit               # offset in the file to end at
    cdef const char* reason           # why an event cannot be decoded
    cdef int64_t reason_value         # for the %d in it
    cdef int64_t reason_limit         # for the second one
    cdef uint64_t event_bytes_max     # of one event
    cdef readonly str file
    cdef readonly uint64_t position   # end of the last decoded or announced event
    cdef readonly uint64_t bytes_in
    cdef readonly uint64_t events
    cdef readonly uint32_t last_event_time

    # Makes the feed's next event the current one; returns RUNNING, or why not.
    cdef int next(self) noexcept nogil
    cdef void advance(self) noexcept nogil
    cdef void note_heartbeat(self) noexcept nogil
    cdef void enter_statement(self) noexcept nogil
    # Records why the current event cannot be decoded; returns BROKEN.
    cdef int fail(self, const char* reason, int64_t value) noexcept nogil
    cdef int fail_limit(self, const char* reason, int64_t value,
                        int64_t limit) noexcept nogil
    cdef str reason_text(self)

    cdef void return_to_outer(self)
    cdef int next_packet(self) noexcept nogil
    cdef int await_packet(self, const uint8_t* p, size_t waiting,
                          uint64_t payload) noexcept nogil
    cdef uint32_t read_header(self, const uint8_t* p) noexcept nogil
    cdef void as_expected(self) noexcept nogil
    cdef int check_length(self, uint64_t length) noexcept nogil
    cdef size_t join_packets(self, uint8_t* p, size_t total) noexcept nogil
    cdef int packet_event(self, const uint8_t* p, size_t n, size_t given) noexcept nogil
    cdef int next_event(self, const uint8_t* p, size_t n, size_t given) noexcept nogil
    cdef int check_sum(self, const uint8_t* p, uint32_t length) noexcept nogil
    cdef int next_inner(self) noexcept nogil
