# cython: language_level=3
"""The result of one fetch: entries as slices of bytes, and their positions."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from canal_server.core.blocks cimport (
    FLAG_GTID,
    FLAG_OPEN,
    KIND_BEGIN,
    KIND_END,
    KIND_HEARTBEAT,
    KIND_OTHER,
    KIND_ROWS,
    Block,
    Record,
)
from canal_server.core.runs cimport is_ddl, continues_after


cdef inline bint belongs_to_open(const Record* record) noexcept nogil:
    """Return whether a record can be in a transaction that is open before it."""
    return (
        record.kind == KIND_ROWS
        or record.kind == KIND_END
        or (record.kind == KIND_OTHER and record.flags & FLAG_OPEN != 0)
    )


cdef inline bint is_elsewhere(Block a, Block b):
    """Return whether two blocks are of two files, or sources: no transaction is."""
    return a is not b and (a.file != b.file or a.source != b.source)


cdef class Fetched:
    """Entries that a get fetched; keeps their blocks alive."""

    def slices(self):
        """Return the entries' bytes in order, as fewer than 512 memoryviews."""
        return self.runs.slices()

    def positions(self):
        """Return the positions of the first, the last and the last resumable entry.

        Each as `Block.position` returns it; the last one is None when there is none.
        """
        ack = None
        if self.ack_block != NULL:
            ack = (<Block>self.ack_block).position(self.ack_index)
        return (
            (<Block>self.start_block).position(self.start_index),
            (<Block>self.end_block).position(self.end_index),
            ack,
        )

    cdef int add(self, PyObject* block, uint32_t index) except -1:
        cdef Record* record = &(<Block>block).records[index]
        self.runs.add(block, index)
        if self.count == 0:
            self.start_block, self.start_index = block, index
        self.end_block, self.end_index = block, index
        if record.kind != KIND_HEARTBEAT:
            if not belongs_to_open(record):
                self.begins_anew |= not self.has_begun
                self.is_broken |= self.is_open
            elif self.is_open and is_elsewhere(<Block>self.open_block, <Block>block):
                # MariaDB's transactions have no begin that would show it.
                self.is_broken = True
            self.has_begun = True
            self.open_block = block
            self.is_open = continues_after(record)
        self.count += 1
        self.size += record.end - (<Block>block).begin_of(index)
        # A client may resume after these entries. A BEGIN with a GTID is excluded: its
        # set contains the transaction that has only started.
        if (
            record.kind == KIND_END
            or (record.kind == KIND_BEGIN and not record.flags & FLAG_GTID)
            or (is_ddl(record) and not record.flags & FLAG_OPEN)
        ):
            self.ack_block, self.ack_index = block, index
        return 0
