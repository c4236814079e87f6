# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Messages in the form of protobuf, straight from the bytes of entries.

Each message is a Packet with the entries of a batch that go to one partition. The bytes
are those of the original's producers, which has two forms of them:

    whole batches   0x18 type = MESSAGES, 0x2a Messages {0x08 batch id, 0x12 Entry …}
    others          0x10 version = 1, 0x18 type = MESSAGES, 0x2a Messages {0x12 Entry …}

If rows find their partitions by their values, each row is an entry of its own, with all
that the entry has around its rows:

    Entry      0x0a header, 0x10 entryType, 0x1a RowChange
    RowChange  0x10 eventType, 0x50 isDdl, …, 0x62 RowData …, 0x6a props, …

Nothing of a row becomes an object of Python.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, qsort, realloc

from canal_server.arrow.text_values cimport is_utf8
from canal_server.core.entry_wire cimport (
    ENTRY_ROWDATA, EVENT_DELETE, TAG_AFTER, TAG_BEFORE, TAG_ROW, Change, EntryHead, Slice,
    input_of, next_field, read_change, read_entry, same, skip_field, take_slice,
    take_varint,
)
from canal_server.core.wire cimport Input, put_bytes, put_varint, varint_size
from canal_server.queues.batch_rows cimport COLUMNS_MAX, Column, check, read_column
from canal_server.queues.table_routes cimport (
    HASH_KEY, HASH_TABLE, NO_HASH, Route, Routes, java_hash, partition_of,
)

from canal_server.errors import ProtocolError

cdef enum:
    TAG_STORE = 0x1A        # the content of an entry
    TAG_ENTRY = 0x12        # an entry, in Messages
    TAG_BODY = 0x2A         # Messages, in Packet
    WHOLE = -1              # the frame of an entry that stays as it is


cdef struct Frame:
    # What an entry has around its rows.
    Slice head              # of the entry: before its content
    Slice before            # of the content: before the first row
    Slice after             # of the content: after the last row
    Slice tail              # of the entry: after its content


cdef struct Piece:
    # An entry of a message: a whole one, or a row in the frame of its entry.
    Slice data              # of a row: with its tag and size
    size_t store_size       # of a row: what the content of its entry will be
    size_t size             # what the entry will be
    int32_t frame
    uint32_t topic
    uint32_t partition


cdef struct Name:
    # A column of the current entry.
    Slice text
    bint hashed             # its value decides about the partition


cdef class PacketMessages:
    """Makes messages of batches; for one thread at a time.

    `route_of(schema, table)` returns a Route; it is asked once for each table.
    """

    cdef Routes routes
    cdef bint has_batch_id
    cdef bint has_markers
    cdef Piece* pieces
    cdef size_t pieces_n
    cdef size_t pieces_room
    cdef Frame* frames
    cdef size_t frames_n
    cdef size_t frames_room
    cdef Name* names
    cdef size_t names_n
    cdef dict topics        # of the batch: their numbers
    cdef EntryHead head

    def __cinit__(self):
        self.names = <Name*>calloc(COLUMNS_MAX, sizeof(Name))
        if self.names == NULL:
            raise MemoryError("no memory for the columns of messages")

    def __init__(self, route_of, *, bint has_batch_id=False, bint has_markers=False):
        """Set the function that knows the routes.

        `has_batch_id`: batches are whole, in one topic and one partition.
        `has_markers`: begins and ends of transactions are kept.
        """
        self.routes = Routes(route_of)
        self.has_batch_id, self.has_markers = has_batch_id, has_markers

    def __dealloc__(self):
        free(self.pieces)
        free(self.frames)
        free(self.names)

    def convert(self, int64_t batch_id, data, int64_t now_ms):
        """Return the messages of a body of Messages: topic, partition, bytes.

        Raises ProtocolError for malformed entries.
        """
        cdef Py_buffer view
        cdef Input entries
        cdef Slice slice
        self.pieces_n = self.frames_n = 0
        self.topics = {}
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            entries.p = <const uint8_t*>view.buf
            entries.end, entries.short = entries.p + view.len, False
            while next_field(&entries, TAG_ENTRY, &slice):
                check(read_entry(slice.p, slice.n, &self.head))
                if self.has_markers or self.head.kind == ENTRY_ROWDATA:
                    self.entry(slice)
            check(not entries.short)
            return self.messages(batch_id)
        finally:
            PyBuffer_Release(&view)

    # --- entries ----------------------------------------------------------------------

    cdef int entry(self, Slice entry) except -1:
        """Note the pieces of an entry."""
        cdef Change change
        cdef Route route = self.routes.find(self.head.schema, self.head.table)
        cdef uint32_t topic = self.topic(route.topic)
        cdef uint32_t partition = 0
        if route.mode == NO_HASH:
            partition = route.partition
        elif self.head.kind == ENTRY_ROWDATA:
            check(read_change(self.head.store, &change))
            if change.rows and not change.is_ddl:
                if route.mode != HASH_TABLE:
                    return self.split(entry, &change, route, topic)
                partition = partition_of(route.begin, route.partitions)
        self.note(entry, entry.n, WHOLE, topic, partition)
        return 0

    cdef uint32_t topic(self, str name) except? 0:
        """Return the number of a topic in this batch."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = len(self.topics)
        return found

    cdef Piece* note(self, Slice data, size_t size, int32_t frame, uint32_t topic,
                     uint32_t partition) except NULL:
        cdef Piece* piece
        cdef void* grown
        if self.pieces_n == self.pieces_room:
            grown = realloc(self.pieces, (2 * self.pieces_room + 64) * sizeof(Piece))
            if grown == NULL:
                raise MemoryError("no memory for the entries of messages")
            self.pieces, self.pieces_room = <Piece*>grown, 2 * self.pieces_room + 64
        piece = &self.pieces[self.pieces_n]
        self.pieces_n += 1
        piece.data, piece.size, piece.frame = data, size, frame
        piece.topic, piece.partition = topic, partition
        return piece

    # --- rows -------------------------------------------------------------------------

    cdef int split(self, Slice entry, const Change* change, Route route,
                   uint32_t topic) except -1:
        """Note each row of an entry as a piece."""
        cdef Input source = input_of(self.head.store)
        cdef Frame* frame = self.next_frame()
        cdef const uint8_t* begin
        cdef uint32_t rows = 0
        cdef size_t around, outer, size
        cdef Slice row, data
        cdef uint64_t tag
        cdef Piece* piece
        check(self.set_frame(frame, entry, change.rows))
        around = frame.before.n + frame.after.n
        outer = frame.head.n + 1 + frame.tail.n
        source.p += frame.before.n
        self.names_n = 0
        while rows < change.rows:
            begin = source.p
            tag = take_varint(&source)
            # The decoder writes rows one after the other.
            check(tag == TAG_ROW)
            row = take_slice(&source)
            check(not source.short)
            data.p, data.n = begin, source.p - begin
            size = around + data.n
            piece = self.note(data, outer + varint_size(size) + size,
                              <int32_t>(self.frames_n - 1), topic,
                              self.partition(row, change, route))
            piece.store_size = size
            rows += 1
        return 0

    cdef Frame* next_frame(self) except NULL:
        cdef void* grown
        if self.frames_n == self.frames_room:
            grown = realloc(self.frames, (2 * self.frames_room + 64) * sizeof(Frame))
            if grown == NULL:
                raise MemoryError("no memory for the entries of messages")
            self.frames, self.frames_room = <Frame*>grown, 2 * self.frames_room + 64
        self.frames_n += 1
        return &self.frames[self.frames_n - 1]

    cdef bint set_frame(self, Frame* frame, Slice entry, uint32_t rows) noexcept:
        """Find what is around the rows of an entry; false if it is malformed."""
        cdef Input source = input_of(entry)
        cdef Slice store = self.head.store
        cdef const uint8_t* begin = entry.p
        cdef uint64_t tag = 0
        while source.p < source.end:
            begin = source.p
            tag = take_varint(&source)
            if tag == TAG_STORE:
                take_slice(&source)
                break
            skip_field(&source, tag)
        if source.short or source.p != store.p + store.n:
            return False  # no content, or more than one
        frame.head.p, frame.head.n = entry.p, begin - entry.p
        frame.tail.p, frame.tail.n = source.p, source.end - source.p
        source = input_of(store)
        frame.before.p, frame.before.n = store.p, 0
        while source.p < source.end:
            begin = source.p
            tag = take_varint(&source)
            if tag == TAG_ROW:
                frame.before.n = begin - store.p
                break
            skip_field(&source, tag)
        source.p = begin
        while rows and source.p < source.end:
            rows -= take_varint(&source) == TAG_ROW
            take_slice(&source)
        frame.after.p, frame.after.n = source.p, source.end - source.p
        return rows == 0 and not source.short

    cdef uint32_t partition(self, Slice row, const Change* change, Route route) except? 0:
        """Return where a row goes."""
        cdef Input source = input_of(row)
        cdef uint64_t image = TAG_BEFORE if change.event == EVENT_DELETE else TAG_AFTER
        cdef int32_t hashed = route.begin
        cdef Slice field
        cdef Column column
        cdef size_t at = 0
        cdef bint counts
        while next_field(&source, image, &field):
            check(read_column(field, &column))
            counts = column.is_key if route.mode == HASH_KEY else (
                self.is_named(column.name, at, route))
            at += 1
            if counts:
                # Java's hash is one of characters.
                check(is_utf8(column.value.p, column.value.n))
                hashed ^= java_hash(column.value)
        check(not source.short)
        return partition_of(hashed, route.partitions)

    cdef bint is_named(self, Slice name, size_t at, Route route) except? False:
        """Return whether the expression names this column, number `at` of a row."""
        if at == COLUMNS_MAX:
            raise ProtocolError(f"a row has more than {COLUMNS_MAX} columns")
        if at >= self.names_n or not same(name, self.names[at].text.p, self.names[at].text.n):
            self.names[at].text = name
            self.names[at].hashed = route.names(name)
            self.names_n = at + 1
        return self.names[at].hashed

    # --- messages ---------------------------------------------------------------------

    cdef list messages(self, int64_t batch_id):
        """Return the messages of the pieces, by topic and partition."""
        cdef size_t begin = 0
        cdef size_t end = 0
        cdef Piece* first
        cdef list topics = list(self.topics)
        cdef list made = []
        if self.pieces_n > 1:
            qsort(self.pieces, self.pieces_n, sizeof(Piece), order)
        while end < self.pieces_n:
            first = &self.pieces[begin]
            while end < self.pieces_n and self.pieces[end].topic == first.topic and (
                    self.pieces[end].partition == first.partition):
                end += 1
            made.append((topics[first.topic], first.partition,
                         self.message(batch_id, begin, end)))
            begin = end
        return made

    cdef bytes message(self, int64_t batch_id, size_t begin, size_t end):
        cdef uint64_t number = <uint64_t>batch_id
        cdef size_t body = 1 + varint_size(number) if self.has_batch_id else 0
        cdef size_t at
        cdef bytes made
        cdef uint8_t* p
        for at in range(begin, end):
            body += 1 + varint_size(self.pieces[at].size) + self.pieces[at].size
        made = PyBytes_FromStringAndSize(
            NULL, (2 if self.has_batch_id else 4) + 1 + varint_size(body) + body)
        p = <uint8_t*>PyBytes_AS_STRING(made)
        if self.has_batch_id:
            p = put_bytes(p, b"\x18\x07\x2a", 3)
        else:
            p = put_bytes(p, b"\x10\x01\x18\x07\x2a", 5)
        p = put_varint(p, body)
        if self.has_batch_id:
            p[0] = 0x08
            p = put_varint(p + 1, number)
        for at in range(begin, end):
            p = self.put_piece(p, &self.pieces[at])
        return made

    cdef uint8_t* put_piece(self, uint8_t* p, const Piece* piece) noexcept nogil:
        cdef const Frame* frame
        p[0] = TAG_ENTRY
        p = put_varint(p + 1, piece.size)
        if piece.frame == WHOLE:
            return put_bytes(p, piece.data.p, piece.data.n)
        frame = &self.frames[piece.frame]
        p = put_bytes(p, frame.head.p, frame.head.n)
        p[0] = TAG_STORE
        p = put_varint(p + 1, piece.store_size)
        p = put_bytes(p, frame.before.p, frame.before.n)
        p = put_bytes(p, piece.data.p, piece.data.n)
        p = put_bytes(p, frame.after.p, frame.after.n)
        return put_bytes(p, frame.tail.p, frame.tail.n)


cdef int order(const void* a, const void* b) noexcept nogil:
    """Compare two pieces by topic, partition, and where they are in the batch."""
    cdef const Piece* one = <const Piece*>a
    cdef const Piece* other = <const Piece*>b
    if one.topic != other.topic:
        return -1 if one.topic < other.topic else 1
    if one.partition != other.partition:
        return -1 if one.partition < other.partition else 1
    return -1 if one.data.p < other.data.p else one.data.p > other.data.p
