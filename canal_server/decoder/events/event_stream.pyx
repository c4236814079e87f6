# cython: language_level=3
"""Frames a stream of binlog events and checks that they arrived unchanged.

    stream   framing "packets": MySQL packets, 3 bytes length, 1 sequence, payload;
             first payload byte 0: an event follows, 0xff: error, 0xfe: end
             framing "events": events end to end, as in a binlog file after its magic
    event    4 time, 1 type, 4 server id, 4 length, 4 log position of the event's
             end, 2 flags, body, 4 checksum (if the file has checksums)
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memmove

from canal_server.core.crc32 cimport crc32
from canal_server.core.wire cimport Input, need, take_le, take_packed
from canal_server.decoder.rows.event_constants cimport (
    BROKEN, EV_FORMAT_DESCRIPTION, EV_HEARTBEAT_V2, EV_ROTATE, Event, LIMIT,
    NEED_INPUT, RUNNING, SOURCE_END, SOURCE_ERROR, read32,
)
from canal_server.core.byte_buffer cimport Feed

from canal_server.errors import DecodeError

cdef enum:
    HEADER_BYTES = 19
    CHECKSUM_BYTES = 4
    PACKET_MAX = 0xFFFFFF
    IN_USE_FLAG = 1
    ARTIFICIAL_FLAG = 0x20

cdef uint32_t VERSION_AT = 2 + 50 + 4  # of the format description's post-header list


cdef class EventStream:
    """Frames events, verifies their checksums and tracks their positions.

    One event is current at a time. Base of the decoder, which interprets the events.
    """

    def __init__(self, *, bint packets=True, bint checksum=True,
                 uint64_t event_bytes_max=1 << 30):
        self.feed = Feed()
        self.inner = Feed()
        self.packets = packets
        self.checksum = checksum
        self.event_bytes_max = event_bytes_max
        self.limit = <uint64_t>-1
        self.file = ""

    def set_limit(self, uint64_t position):
        """Halt with HALT_LIMIT when the file is decoded up to this offset."""
        self.limit = position

    def skip(self):
        """Answer: deliver nothing for the current event."""
        self.answered = True

    def finish_payload(self):
        """Finish the current payload after all its inner events were fed.

        Raises DecodeError if the remaining bytes are not a complete event.
        """
        left = self.inner.waiting
        self.inner.clear()
        self.in_payload = False
        self.return_to_outer()
        self.answered = True
        if left:
            raise DecodeError(f"{left} bytes left after the last inner event",
                              file=self.file, position=self.event.offset)

    def abandon_payload(self):
        """Make the payload the current event again, even amid its inner events."""
        if self.in_payload:
            self.inner.clear()
            self.in_payload = False
            self.return_to_outer()
        self.answered = False

    cdef void return_to_outer(self):
        self.event = self.outer
        self.event_bytes = self.outer_bytes
        self.raw_n = self.outer_raw_n

    def begin_payload(self):
        """Expect inner events of the current event in `inner`."""
        self.outer = self.event
        self.outer_bytes = self.event_bytes
        self.outer_raw_n = self.raw_n
        self.event_bytes = 0
        self.in_payload = True
        self.ordinal = 0
        self.inner.clear()

    @property
    def body(self):
        """Return the current event's body as bytes."""
        return PyBytes_FromStringAndSize(<const char*>self.event.body,
                                         self.event.body_n)

    @property
    def raw(self):
        """Return the current event as it was sent: header, body and checksum."""
        return PyBytes_FromStringAndSize(
            <const char*>self.event.body - HEADER_BYTES, self.raw_n)

    @property
    def is_framed(self):
        """Whether the end of the current event is known."""
        return self.event_bytes > 0

    @property
    def event_type(self):
        """Return the current event's type code."""
        return self.event.type

    @property
    def event_time(self):
        """Return the current event's time, s."""
        return self.event.time

    @property
    def event_is_artificial(self):
        """Whether the server made the current event for this dump; no file has it."""
        return not self.placed or self.event.flags & ARTIFICIAL_FLAG != 0

    @property
    def event_server_id(self):
        """Return the server id of the current event's header."""
        return self.event.server_id

    @property
    def event_offset(self):
        """Return the offset of the current event's start in its file."""
        return self.event.offset

    @property
    def missing(self):
        """Return about how many bytes of the feed's next event are missing."""
        cdef size_t waiting = self.feed.end - self.feed.begin
        cdef const uint8_t* p = self.feed.data + self.feed.begin
        cdef size_t needed
        if self.packets:
            if waiting < 4:
                return 4
            needed = 4 + (p[0] | p[1] << 8 | p[2] << 16)
        else:
            if waiting < HEADER_BYTES:
                return HEADER_BYTES
            needed = p[9] | p[10] << 8 | p[11] << 16 | <size_t>p[12] << 24
        return max(needed - waiting, 0) if needed > waiting else PACKET_MAX

    @property
    def is_settled(self):
        """Whether `position` is known to be between two transactions.

        Reading can start there, and nothing after it has been read.
        """
        return self.standing == BETWEEN and not self.in_payload

    def settle(self):
        """Declare that the start position is between two transactions."""
        self.standing = BETWEEN

    def where(self):
        """Return file:offset of the current event, for messages."""
        return f"{self.file}:{self.event.offset}"

    cdef int next(self) noexcept nogil:
        if self.answered:
            self.advance()
        if self.in_payload:
            return self.next_inner()
        if self.position >= self.limit:
            return LIMIT
        if self.packets:
            return self.next_packet()
        return self.next_event(self.feed.data + self.feed.begin,
                               self.feed.end - self.feed.begin, 0)

    cdef void advance(self) noexcept nogil:
        """Advance past the current event."""
        self.answered = False
        if self.in_payload:
            self.inner.begin += self.event_bytes
            self.ordinal += 1
        else:
            self.feed.begin += self.event_bytes
            # Artificial events have no position in the file.
            if self.placed and self.event.type != EV_ROTATE:
                self.position = self.event.offset + self.event.length
            self.events += 1
            self.bytes_in += self.event_bytes
        if self.event.time:
            self.last_event_time = self.event.time
        self.event_bytes = 0

    cdef void note_heartbeat(self) noexcept nogil:
        """Advance past events that the server omitted; the second kind has it in its body.

        Fields of 1 kind, 1 length, value: 1 is the file's name, 2 the offset in it, as
        a number of variable length. The first kind has it in its header.
        """
        cdef Input source
        cdef uint64_t field, n, offset
        if self.event.type != EV_HEARTBEAT_V2 or self.placed:
            return
        source.p = self.event.body
        source.end = source.p + self.event.body_n
        source.short = False
        while source.p < source.end:
            field = take_le(&source, 1)
            if field == 0 or source.short:
                return
            n = take_packed(&source)
            if source.short or n > <uint64_t>(source.end - source.p):
                return
            if field == 2:
                offset = take_packed(&source)
                if not source.short and offset > self.position:
                    self.position = offset
                return
            need(&source, n)

    cdef void enter_statement(self) noexcept nogil:
        """Record that more of the statement, or its rows, follow."""
        if self.standing == BETWEEN:
            self.standing = INSIDE

    cdef int next_packet(self) noexcept nogil:
        """Find the event in the packets at the feed's head."""
        cdef uint8_t* p = self.feed.data + self.feed.begin
        cdef size_t waiting = self.feed.end - self.feed.begin
        cdef size_t n, total, following, payload
        if waiting < 4:
            return NEED_INPUT
        n = p[0] | p[1] << 8 | p[2] << 16
        if waiting < 4 + n:
            return self.await_packet(p, waiting, n)
        if n == PACKET_MAX:
            # The event continues in further packets. When all have arrived, the headers
            # between them are removed, and the gap moves after the event.
            total = 4 + n
            following = payload = n
            while following == PACKET_MAX:
                if waiting < total + 4:
                    return self.await_packet(p, waiting, payload)
                following = p[total] | p[total + 1] << 8 | p[total + 2] << 16
                total += 4 + following
                payload += following
                if waiting < total:
                    return self.await_packet(p, waiting, payload)
            n = self.join_packets(p, total)
            return self.packet_event(p + 4, n, total)
        if n == 0:
            self.as_expected()
            return self.fail("an empty packet", 0)
        return self.packet_event(p + 4, n, 4 + n)

    cdef int await_packet(self, const uint8_t* p, size_t waiting,
                          uint64_t payload) noexcept nogil:
        """Request more input, unless the announced size exceeds the limit of an event.

        `payload`: the bytes of the packets so far, of which the last may be incomplete.
        """
        cdef uint32_t length
        if waiting < 5 or p[4] != 0:
            if payload >= PACKET_MAX and waiting >= 5:
                self.as_expected()
                return self.fail("an answer of %d bytes that is not an event", payload)
            return NEED_INPUT
        if waiting < 5 + HEADER_BYTES:
            return NEED_INPUT
        length = read32(p + 5 + 9)
        if length > self.event_bytes_max or payload > <uint64_t>length + 1:
            self.read_header(p + 5)
            self.event.offset = self.position
            if length <= self.event_bytes_max:
                return self.fail("a length of %d, with more in its packets", length)
            return self.check_length(length)
        return NEED_INPUT

    cdef size_t join_packets(self, uint8_t* p, size_t total) noexcept nogil:
        """Remove the inner headers; returns the payload's length.

        Packets of 16 MiB are joined once, when the last byte has arrived. It happens
        only once per event: the event is then decoded to its end, or halts and is found
        by `event` (`answered` is false and event_bytes is set).
        """
        cdef size_t at = 4 + PACKET_MAX
        cdef size_t to = 4 + PACKET_MAX
        cdef size_t n
        while at < total:
            n = p[at] | p[at + 1] << 8 | p[at + 2] << 16
            memmove(p + to, p + at + 4, n)
            at += 4 + n
            to += n
        return to - 4

    cdef int packet_event(self, const uint8_t* p, size_t n, size_t given) noexcept nogil:
        if p[0] == 0xFF or (p[0] == 0xFE and n < 9):
            self.event.body = p + 1
            self.event.body_n = n - 1
            self.event_bytes = given
            return SOURCE_ERROR if p[0] == 0xFF else SOURCE_END
        if p[0] != 0:
            self.as_expected()
            return self.fail("a packet that begins with %d instead of 0", p[0])
        return self.next_event(p + 1, n - 1, given)

    cdef int next_event(self, const uint8_t* p, size_t n, size_t given) noexcept nogil:
        """Read the header at p; `given` is 0 if no packet gives the length."""
        cdef Event* e = &self.event
        cdef uint32_t length
        if n < HEADER_BYTES:
            if given == 0:
                return NEED_INPUT
            self.as_expected()
            return self.fail("a header of %d bytes", n)
        if given == 0:
            length = read32(p + 9)
            if HEADER_BYTES <= length <= self.event_bytes_max and n < length:
                return NEED_INPUT
        length = self.read_header(p)
        if given == 0:
            if length < HEADER_BYTES or length > self.event_bytes_max:
                e.offset = self.position
            if length < HEADER_BYTES:
                return self.fail("a length of %d", length)
            if n < length:
                return self.check_length(length)
            given = length
        elif length != n:
            e.offset = self.position
            e.body, e.body_n = p + HEADER_BYTES, n - HEADER_BYTES
            self.event_bytes, self.raw_n = given, n
            return self.fail("a length of %d that differs from its packet's", length)
        e.body = p + HEADER_BYTES
        e.body_n = length - HEADER_BYTES
        self.event_bytes = given
        self.raw_n = length
        if length > self.event_bytes_max:
            return self.check_length(length)
        if self.check_sum(p, length) == RUNNING:
            return RUNNING
        # Its own position may be damaged. The next one of a stream may be later than
        # expected, where the server left something out, but not earlier.
        if not self.packets or e.offset < self.position:
            e.offset = self.position
        return BROKEN

    cdef void as_expected(self) noexcept nogil:
        """Make what cannot be read the next event, of an unknown type."""
        self.event.type, self.event.offset = 0, self.position

    cdef uint32_t read_header(self, const uint8_t* p) noexcept nogil:
        """Make the event with this header the current one; returns its length."""
        cdef Event* e = &self.event
        cdef uint32_t length = read32(p + 9)
        cdef uint32_t log_pos = read32(p + 13)
        cdef uint64_t end
        e.time = read32(p)
        e.type = p[4]
        e.server_id = read32(p + 5)
        e.flags = p[17] | p[18] << 8
        e.length = length
        e.offset = self.position
        self.placed = log_pos != 0
        if log_pos:
            # The field has 32 bits and wraps around in files of 4 GiB and more.
            end = (self.position >> 32 << 32) | log_pos
            if end + (<uint64_t>1 << 31) < self.position:
                end += <uint64_t>1 << 32
            e.offset = end - length if end >= length else 0
        return length

    cdef int check_length(self, uint64_t length) noexcept nogil:
        """Fail for an event above the limit; RUNNING if it is not."""
        if length <= self.event_bytes_max:
            return RUNNING
        return self.fail_limit("%d bytes, above canal.instance.event.bytes.max = %d",
                               length, self.event_bytes_max)

    cdef int check_sum(self, const uint8_t* p, uint32_t length) noexcept nogil:
        """Verify and remove the checksum."""
        cdef Event* e = &self.event
        cdef uint32_t found, expected
        cdef uint8_t[2] flags
        if e.type == EV_FORMAT_DESCRIPTION:
            self.checksum = False
            if e.body_n < VERSION_AT + 5:
                return self.fail("a format description of %d bytes", length)
            # Its last byte before its own checksum is the algorithm: 1 is CRC32.
            if (starts_with_version(p + HEADER_BYTES + 2)
                    and p[length - 5] <= 1):
                self.checksum = p[length - 5] == 1
                e.body_n -= CHECKSUM_BYTES
                if not self.checksum:
                    return RUNNING
            else:
                return RUNNING
        elif not self.checksum:
            return RUNNING
        else:
            if e.body_n < CHECKSUM_BYTES:
                return self.fail("a body of %d bytes, too short for its checksum",
                                 e.body_n)
            e.body_n -= CHECKSUM_BYTES
        expected = read32(p + length - CHECKSUM_BYTES)
        if e.type == EV_FORMAT_DESCRIPTION and e.flags & IN_USE_FLAG:
            # The checksum was made before the flag was set.
            flags[0] = p[17] & 0xFE
            flags[1] = p[18]
            found = crc32(p, 17, 0)
            found = crc32(flags, 2, found)
            found = crc32(p + 19, length - 19 - CHECKSUM_BYTES, found)
        else:
            found = crc32(p, length - CHECKSUM_BYTES, 0)
        if found != expected:
            if e.type == EV_ROTATE and e.offset == self.position:
                # The artificial one at the head of a stream may have none.
                e.body_n += CHECKSUM_BYTES
                return RUNNING
            return self.fail("the event's checksum is wrong: the event was "
                             "damaged on a disk or in transit", 0)
        return RUNNING

    cdef int next_inner(self) noexcept nogil:
        """Read the next event of a payload: no checksum, positions of the outer one."""
        cdef const uint8_t* p = self.inner.data + self.inner.begin
        cdef size_t n = self.inner.end - self.inner.begin
        cdef Event* e = &self.event
        cdef uint32_t length
        if n < HEADER_BYTES:
            return NEED_INPUT
        length = read32(p + 9)
        if length < HEADER_BYTES:
            return self.fail("an inner event with a length of %d", length)
        if length > self.event_bytes_max:
            e.type = p[4]
            return self.check_length(length)
        if n < length:
            return NEED_INPUT
        e.time = read32(p)
        e.type = p[4]
        e.server_id = read32(p + 5)
        e.flags = p[17] | p[18] << 8
        e.offset = self.outer.offset
        e.length = self.outer.length
        e.body = p + HEADER_BYTES
        e.body_n = length - HEADER_BYTES
        self.event_bytes = length
        self.raw_n = length
        return RUNNING

    cdef int fail(self, const char* reason, int64_t value) noexcept nogil:
        self.reason = reason
        self.reason_value = value
        return BROKEN

    cdef int fail_limit(self, const char* reason, int64_t value,
                        int64_t limit) noexcept nogil:
        self.reason_limit = limit
        return self.fail(reason, value)

    cdef str reason_text(self):
        """Return why the current event cannot be decoded."""
        reason = self.reason.decode() if self.reason != NULL else "broken event"
        values = (self.reason_value, self.reason_limit)
        return reason % values[:reason.count("%d")]


cdef bint starts_with_version(const uint8_t* p) noexcept nogil:
    """Check whether a server of this version writes its checksum algorithm.

    MySQL from 5.6.1 and MariaDB from 5.3 do.
    """
    if p[0] >= 49 and p[0] <= 57 and p[1] >= 48 and p[1] <= 57:
        return True  # 10.x and later
    if p[0] > 53 and p[0] <= 57:
        return True
    return p[0] == 53 and p[1] == 46 and (p[2] >= 54 or p[2] == 51 or p[2] == 53)
