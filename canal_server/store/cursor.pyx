# cython: language_level=3
"""A client's cursor in the ring, and which of the entries there pass its filter.

::

    ack_sequence <= get_sequence <= bound <= scan_sequence <= put_sequence
        | in open batches | to be got | undecided

A cursor with a filter asks it once about each table. That may take long and is never
done here: a cursor that reaches a table which its filter was not asked about *waits*
there (`asks`) until a thread that holds no lock has asked, and passes the answer to
`learn`.

A cursor with a filter judges each entry once, when it scans it, and keeps the
verdict until the entry is acked: after a rollback the client gets the same entries
again. Transactions without a passing row are dropped as in the sink; a BEGIN is
undecided until a row passes or the END is scanned.

Leaves out locks and waiting: the caller holds the store's lock.
"""

from cpython.object cimport PyObject
from libc.stdint cimport UINT64_MAX, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from canal_server.core.blocks cimport (
    KIND_BEGIN,
    KIND_END,
    KIND_HEARTBEAT,
    Block,
    Record,
)
from canal_server.core.emptiness cimport Emptiness, empty_passes
from canal_server.core.runs cimport Runs, is_ddl, continues_after
from canal_server.store.ring cimport Ring, Slot
from canal_server.store.fetched cimport Fetched

from canal_server.errors import StoreError
from canal_server.model.positions import binlog_file_number

cdef uint64_t NEVER = UINT64_MAX  # a sequence that no entry has
cdef uint32_t SOURCES = 64 + 1  # of a group, by numbers from 1 on


cdef struct After:
    # The position in a source's binlog after which a client begins.
    bint known
    bint seeking  # no entry after it was seen so far
    uint64_t file_number
    uint64_t offset


cdef class Cursor:
    """Get and ack sequence of one client, and its filter.

    `table_filter` is asked once per table, None passes everything. `after` is a binlog
    file's number and an offset: entries at or before it are skipped. In a group it is
    a dict of these by source number.
    """

    cdef Ring ring
    cdef readonly object table_filter
    cdef readonly int client_id
    cdef readonly uint64_t get_sequence   # of the next entry to get
    cdef readonly uint64_t ack_sequence   # of the next entry to ack
    cdef readonly uint64_t scan_sequence  # of the next entry to judge
    cdef readonly uint64_t available      # entries that pass and were not got
    cdef readonly uint64_t available_bytes  # their weight
    cdef readonly uint64_t got_rows
    cdef readonly uint32_t got_time       # of the last entry got, s
    cdef uint64_t scan_bytes              # ring.put_bytes at scan_sequence

    # The position to begin after, until an entry after it was seen.
    cdef bint seeking
    cdef uint64_t after_file_number
    cdef uint64_t after_offset
    cdef After* afters          # in a group: by source number; NULL: no group

    # In a group: the last boundary of each source before `passed_sequence`.
    cdef dict passed
    cdef uint64_t passed_sequence

    # The filter: passes (1) or not (0) by table id, and the verdict by slot.
    cdef bytes mask           # of the table ids from `mask_first` on
    cdef uint64_t mask_first
    cdef uint8_t* verdicts  # NULL: no filter
    cdef readonly bint asks   # the table id at the scan sequence is not in the mask
    cdef bint learned         # an answer was given since
    cdef object next_filter   # a new filter, until it was asked about all tables
    cdef bytes next_mask      # None: there is no new filter
    cdef uint64_t next_first

    # The transaction that is being scanned.
    cdef Emptiness empties
    cdef bint started         # its BEGIN was scanned and its END was not
    cdef bint begin_open      # its BEGIN is undecided
    cdef uint64_t begin_sequence
    cdef uint32_t begin_time
    cdef bint begin_carried   # the undecided BEGIN is the carried one
    cdef bint rows_passed

    # An undecided BEGIN that was removed from the ring is carried here, and delivered
    # just before the entry `carried_before`, once that is known. There is at most one:
    # the ring removes no second BEGIN before that entry is acked.
    cdef Block carried_block
    cdef uint32_t carried_index
    cdef uint64_t carried_before

    def __init__(self, Ring ring, int client_id, table_filter, after=None):
        self.ring = ring
        self.client_id = client_id
        self.get_sequence = self.ack_sequence = self.scan_sequence = ring.free_sequence
        self.scan_bytes = ring.free_bytes
        self.carried_before = NEVER
        if ring.grouped:
            self.init_group(after or {})
            table_filter = _everything if table_filter is None else table_filter
        elif after is not None:
            self.seeking = True
            self.after_file_number, self.after_offset = after
        self.rows_passed = True
        self.mask_first, self.mask = 1, b""  # 0 is not a table id that it decides on
        self.table_filter = table_filter
        self.choose_filter()

    def __dealloc__(self):
        free(self.verdicts)
        free(self.afters)

    cdef int init_group(self, dict after) except -1:
        cdef uint32_t source
        self.afters = <After*>calloc(SOURCES, sizeof(After))
        if self.afters == NULL:
            raise MemoryError(f"no memory for the positions of {SOURCES} sources")
        for source, (number, offset) in after.items():
            if source >= SOURCES:
                raise ValueError(
                    f"source {source} of a group: at most {SOURCES - 1} are supported"
                )
            self.afters[source] = After(True, True, number, offset)
        self.passed = {}
        self.add_passed(self.ring.boundaries_before(self.get_sequence))
        self.passed_sequence = self.get_sequence
        return 0

    cdef int choose_filter(self) except -1:
        if self.table_filter is None:
            free(self.verdicts)
            self.verdicts = NULL
        else:
            if self.verdicts == NULL:
                self.verdicts = <uint8_t*>calloc(self.ring.size, 1)
                if self.verdicts == NULL:
                    raise MemoryError(f"no memory for {self.ring.size} verdicts")
        self.asks = self.learned = False
        return 0

    @property
    def question(self):
        """Return the filter to ask, and the first table id to ask about."""
        if self.next_mask is not None:
            return self.next_filter, self.next_first + <uint64_t>len(self.next_mask)
        return self.table_filter, self.mask_first + <uint64_t>len(self.mask)

    def learn(self, question, answer):
        """Note the filter's answer to `question`, as `mask_of` returns it.

        No effect when the cursor has another question by now, because it has another
        filter or another thread was faster. Answers about forgotten table ids are
        dropped.
        """
        if question != self.question:
            return
        if self.next_mask is not None:
            self.next_first, self.next_mask = _longer(
                self.next_first, self.next_mask, answer
            )
            self.use_next_filter()
            return
        self.mask_first, self.mask = _longer(self.mask_first, self.mask, answer)
        self.asks = False
        self.learned = True
        self.scan()

    cdef inline bint knows(self, uint64_t table_ordinal) noexcept:
        """Return whether the mask has a verdict on a table id."""
        return table_ordinal == 0 or (
            self.mask_first <= table_ordinal < self.mask_first + <uint64_t>len(self.mask)
        )

    def replace_filter(self, table_filter):
        """Judge everything that is not acked again, by another filter.

        That waits until the filter was asked about all tables in the ring.
        """
        if table_filter == (self.table_filter if self.next_mask is None else self.next_filter):
            return  # compared by value: a bound method is a new object at each access
        self.next_filter = self.next_mask = None
        self.asks = self.learned = False
        if table_filter == self.table_filter:
            self.scan()
        elif table_filter is None:
            self.use_filter(None, 1, b"")
        else:
            self.next_filter, self.next_first, self.next_mask = table_filter, 1, b""
            self.use_next_filter()

    cdef int use_next_filter(self) except -1:
        """Judge by the next filter, if it was asked about everything unacked."""
        cdef uint64_t sequence, table_ordinal
        cdef uint64_t stop = self.next_first + <uint64_t>len(self.next_mask)
        for sequence in range(self.ack_sequence, self.ring.put_sequence):
            table_ordinal = self.ring.record(sequence).table_ordinal
            if table_ordinal and not self.next_first <= table_ordinal < stop:
                self.asks = True
                return 0
        table_filter, mask = self.next_filter, self.next_mask
        self.next_filter = self.next_mask = None
        self.asks = False
        self.use_filter(table_filter, self.next_first, mask)
        return 0

    cdef int use_filter(self, table_filter, uint64_t mask_first, bytes mask) except -1:
        self.table_filter = table_filter
        if table_filter is None and self.carried_block is not None:
            # The carried BEGIN can only be delivered by a cursor with a filter.
            self.table_filter = _everything
        self.mask_first, self.mask = mask_first, mask
        self.choose_filter()
        self.scan_sequence = self.ack_sequence
        self.available = self.available_bytes = 0
        # A carried BEGIN is that of the transaction that contains the ack. Without
        # one its rows may have been delivered, so its END must pass.
        self.started = self.begin_open = self.carried_block is not None
        self.begin_carried = self.begin_open
        self.carried_before = NEVER
        self.rows_passed = not self.begin_open
        if self.begin_open:
            self.begin_time = self.carried_block.records[self.carried_index].time
        if self.verdicts == NULL:
            self.scan_sequence = self.get_sequence
            self.scan_bytes = self.ring.put_bytes - self.weight_from(self.get_sequence)
        self.scan()
        return 0

    cdef uint64_t weight_from(self, uint64_t sequence):
        cdef uint64_t total = 0
        while sequence < self.ring.put_sequence:
            total += self.ring.weight_at(sequence)
            sequence += 1
        return total

    # -- scanning -----------------------------------------------------------------

    cpdef scan(self):
        """Judge the entries put since the last scan, as far as the filter was asked."""
        if self.next_mask is not None:
            return
        if self.seeking:
            self.seek()
        if self.seeking:
            return
        if self.verdicts != NULL:
            self.scan_filtered()
        elif self.scan_sequence < self.ring.put_sequence:
            self.available += self.ring.put_sequence - self.scan_sequence
            self.available_bytes += self.ring.put_bytes - self.scan_bytes
            self.scan_sequence = self.ring.put_sequence
            self.scan_bytes = self.ring.put_bytes

    cpdef forget_after(self, uint32_t source=0):
        """Deliver everything: `after` is not a position in this source.

        In a group, for one of its sources.
        """
        self.seeking = False
        if self.afters != NULL and source < SOURCES:
            self.afters[source].known = self.afters[source].seeking = False

    cdef int seek(self) except -1:
        """Skip entries at or before `after`; no batch is open so far."""
        while self.scan_sequence < self.ring.put_sequence:
            if self.is_after_start(self.scan_sequence):
                self.seeking = False
                return 0
            self.scan_bytes += self.ring.weight_at(self.scan_sequence)
            self.scan_sequence += 1
            self.get_sequence = self.ack_sequence = self.scan_sequence
        return 0

    cdef bint is_to_skip(self, uint64_t sequence) noexcept:
        """Return whether an entry of a group is at or before its source's position."""
        cdef After* after
        cdef Block block = <Block>self.ring.slot(sequence).block
        after = &self.afters[block.source_number % SOURCES]
        if after.seeking:
            after.seeking = not self.is_after(sequence, after.file_number, after.offset)
        return after.seeking

    cdef bint is_after_start(self, uint64_t sequence) noexcept:
        return self.is_after(sequence, self.after_file_number, self.after_offset)

    cdef bint is_after(
        self, uint64_t sequence, uint64_t file_number, uint64_t offset
    ) noexcept:
        cdef Record* record = self.ring.record(sequence)
        cdef uint64_t number = (<Block>self.ring.slot(sequence).block).file_number
        if number != file_number:
            return number > file_number
        if record.offset != offset:
            return record.offset > offset
        # A BEGIN is acked before its rows. Entries of a compressed transaction share
        # its offset, so that the ack does not show how many of them were delivered.
        return record.kind == KIND_BEGIN or record.ordinal > 0

    cdef int scan_filtered(self) except -1:
        cdef uint64_t mask = self.ring.size - 1
        cdef Record* record
        while self.scan_sequence < self.ring.put_sequence:
            record = self.ring.record(self.scan_sequence)
            if not self.knows(record.table_ordinal):
                if self.learned:
                    raise IndexError(
                        f"table id {record.table_ordinal} is not among the {len(self.mask)} "
                        f"from {self.mask_first} on, at "
                        f"{self.ring.position(self.scan_sequence)[0]}:{record.offset}"
                    )
                self.asks = True
                return 0
            self.learned = False
            self.verdicts[self.scan_sequence & mask] = 0
            if self.afters != NULL and self.is_to_skip(self.scan_sequence):
                self.scan_sequence += 1
                continue
            if self.judge(record):
                self.pass_entry(self.scan_sequence)
            self.scan_sequence += 1
        return 0

    cdef bint judge(self, const Record* record) except -1:
        """Return whether the entry at the scan sequence passes."""
        cdef bint passes
        if record.kind == KIND_BEGIN:
            if self.begin_open:
                self.drop_begin()
            self.started = self.begin_open = True
            self.rows_passed = False
            self.begin_sequence, self.begin_time = self.scan_sequence, record.time
            return False
        if record.kind == KIND_END:
            passes = self.rows_passed or empty_passes(
                &self.empties, self.begin_time if self.begin_open else record.time
            )
            if passes:
                self.release_begin()
            elif self.begin_open:
                self.drop_begin()
            self.started = self.rows_passed = False
            return passes
        if record.kind == KIND_HEARTBEAT:
            return True
        if record.table_ordinal and not <uint8_t>self.mask[record.table_ordinal - self.mask_first]:
            return False
        self.release_begin()
        # A DDL outside of BEGIN and END is complete in itself.
        if self.started or not is_ddl(record):
            self.rows_passed = True
        return True

    cdef int pass_entry(self, uint64_t sequence) except -1:
        self.verdicts[sequence & (self.ring.size - 1)] = 1
        if sequence >= self.get_sequence:
            self.available += 1
            self.available_bytes += self.ring.weight_at(sequence)
        return 0

    cdef int release_begin(self) except -1:
        """Pass the undecided BEGIN, before the entry at the scan sequence."""
        if not self.begin_open:
            return 0
        self.begin_open = False
        if not self.begin_carried:
            self.pass_entry(self.begin_sequence)
            return 0
        self.begin_carried = False
        self.carried_before = self.scan_sequence
        if self.scan_sequence >= self.get_sequence:
            self.available += 1
            self.available_bytes += self.carried_weight()
        return 0

    cdef int drop_begin(self) except -1:
        """Reject the undecided BEGIN."""
        self.begin_open = False
        if self.begin_carried:
            self.begin_carried = False
            self.carried_block = None
        return 0

    cdef uint64_t carried_weight(self) noexcept:
        return self.ring.weight(<PyObject*>self.carried_block, self.carried_index)

    # -- sequences ----------------------------------------------------------------

    cdef uint64_t bound(self) noexcept:
        """Return the sequence before which everything is decided."""
        if self.begin_open and not self.begin_carried:
            return max(self.begin_sequence, self.get_sequence)
        return self.scan_sequence

    cdef inline bint passes(self, uint64_t sequence) noexcept:
        return (
            self.verdicts == NULL
            or self.verdicts[sequence & (self.ring.size - 1)] != 0
        )

    cpdef skip(self, bint make_room):
        """Count rejected entries as acked, when no batch is open.

        To make room, an undecided BEGIN is removed from the ring as well.
        """
        if self.get_sequence != self.ack_sequence or self.next_mask is not None:
            return
        self.get_sequence = self.skip_rejected(self.get_sequence)
        if (
            make_room
            and self.begin_open
            and not self.begin_carried
            and self.get_sequence == self.begin_sequence
        ):
            assert self.carried_block is None, "an entry after its own is not acked"
            slot = self.ring.slot(self.begin_sequence)
            self.carried_block, self.carried_index = <Block>slot.block, slot.index
            self.begin_carried = True
            self.get_sequence = self.skip_rejected(self.get_sequence)
        self.ack_sequence = self.get_sequence
        if self.passed is not None:
            self.pass_boundaries(self.get_sequence)

    cdef int pass_boundaries(self, uint64_t sequence) except -1:
        """Note the boundaries of a group's sources before a sequence."""
        if sequence > self.passed_sequence:
            self.add_passed(self.ring.boundaries_between(self.passed_sequence, sequence))
            self.passed_sequence = sequence
        return 0

    cdef int add_passed(self, dict boundaries) except -1:
        """Keep positions, except those at or before `after`.

        Those are in the ring again for the sake of other clients.
        """
        cdef uint32_t source
        cdef After* after
        for source, position in boundaries.items():
            after = &self.afters[source % SOURCES]
            if not after.known or (binlog_file_number(position[0]), position[1]) > (
                after.file_number, after.offset
            ):
                self.passed[source] = position
        return 0

    cdef uint64_t skip_rejected(self, uint64_t sequence) noexcept:
        cdef uint64_t bound
        if self.verdicts == NULL:
            return sequence
        bound = self.bound()
        while sequence < bound and not self.passes(sequence):
            sequence += 1
        return sequence

    def oldest_put_ms(self):
        """Return when the first available entry was put; there must be one."""
        assert self.available > 0
        return self.ring.slot(self.skip_rejected(self.get_sequence)).put_ms

    def unacked_put_ms(self):
        """Return when the first unacked entry was put; there must be one."""
        assert self.ack_sequence < self.ring.put_sequence
        return self.ring.slot(self.ack_sequence).put_ms

    def resume_boundary(self):
        """Return the transaction boundary after which all unacked entries come.

        None when the ring had none so far. A carried BEGIN comes after it as well: no
        boundary is between a BEGIN and what is undecided.
        """
        return self.ring.boundary_before(self.ack_sequence)

    def resume_boundaries(self):
        """Return the same for each source of a group that has one, by number."""
        return self.ring.boundaries_before(self.ack_sequence)

    cpdef Fetched fetch(
        self, uint64_t count_max, uint64_t bytes_max, uint64_t size_max,
        bint isolate_ddl, bint whole=False,
    ):
        """Fetch available entries; None when there are none.

        Fetches at least one entry; otherwise no more than `count_max`, none after the
        one with which their weight exceeds `bytes_max`, and none with which their bytes
        exceed `size_max`. A carried BEGIN comes together with the entry after it. If
        `whole`, the last entry ends a transaction, or none of them does; an END may be
        there beyond `count_max` and `bytes_max`, so that all of its transaction is.
        """
        cdef Ring ring = self.ring
        cdef uint64_t bound = self.bound()
        cdef uint64_t sequence = self.skip_rejected(self.get_sequence)
        cdef uint64_t weight = 0
        cdef uint64_t end = NEVER
        cdef Fetched fetched = Fetched.__new__(Fetched)
        cdef Record* record
        fetched.runs = Runs()
        fetched.first_sequence = sequence
        if whole:
            bound = self.whole_bound(
                sequence, bound, count_max, bytes_max, size_max, &end)
        while sequence < bound:
            record = ring.record(sequence)
            if fetched.count and (
                fetched.count >= count_max
                or weight > bytes_max
                or fetched.size + entry_bytes(ring, sequence) > size_max
                or (isolate_ddl and is_ddl(record))
            ) and sequence != end:
                break
            weight += self.fetch_one(fetched, sequence)
            sequence = self.skip_rejected(sequence + 1)
            if isolate_ddl and is_ddl(record):
                break
        if fetched.count == 0:
            return None
        self.available -= fetched.count
        self.available_bytes -= weight
        self.get_sequence = sequence
        fetched.last_sequence = sequence - 1
        if self.passed is not None:
            self.pass_boundaries(sequence)
            fetched.boundaries = dict(self.passed)
        self.check()
        return fetched

    cdef uint64_t whole_bound(
        self, uint64_t sequence, uint64_t bound,
        uint64_t count_max, uint64_t bytes_max, uint64_t size_max,
        uint64_t* end,
    ) noexcept:
        """Return the sequence after the last end of a transaction within the limits.

        If there is none: after the END beyond `count_max` or `bytes_max` that is next,
        whose sequence is `end` then; else `bound`.
        """
        cdef uint64_t count = 0, weight = 0, size = 0, found = bound
        cdef Record* record
        while sequence < bound:
            size += entry_bytes(self.ring, sequence)
            if count and (count >= count_max or weight > bytes_max or size > size_max):
                if found == bound and size <= size_max and (
                        self.ring.record(sequence).kind == KIND_END):
                    end[0], found = sequence, sequence + 1
                break
            count += 1
            weight += self.ring.weight_at(sequence)
            if sequence == self.carried_before:
                count += 1
                weight += self.carried_weight()
            record = self.ring.record(sequence)
            if record.kind != KIND_HEARTBEAT and not continues_after(record):
                found = sequence + 1
            sequence = self.skip_rejected(sequence + 1)
        return found

    cdef uint64_t fetch_one(self, Fetched fetched, uint64_t sequence) except? 0:
        """Add an entry, after the carried BEGIN if that precedes it."""
        cdef Slot* slot = self.ring.slot(sequence)
        cdef Record* record = self.ring.record(sequence)
        cdef uint64_t weight = self.ring.weight_at(sequence)
        if sequence == self.carried_before:
            fetched.add(<PyObject*>self.carried_block, self.carried_index)
            weight += self.carried_weight()
        fetched.add(slot.block, slot.index)
        self.got_rows += record.rows
        self.got_time = record.time
        return weight

    cpdef ack(self, sequence):
        """Move the ack sequence past this one.

        Raises StoreError when it was not got, or was acked before.
        """
        if not self.ack_sequence <= sequence < self.get_sequence:
            raise StoreError(
                f"client {self.client_id} acked sequence {sequence}, which is not among "
                f"the unacked {self.ack_sequence} to {self.get_sequence - 1}; "
                "roll back and get again"
            )
        if self.carried_before <= sequence:
            self.carried_block = None
            self.carried_before = NEVER
        self.ack_sequence = sequence + 1
        self.check()

    cpdef rollback(self):
        """Reset the get sequence to the ack sequence."""
        cdef uint64_t sequence
        for sequence in range(self.ack_sequence, self.get_sequence):
            if self.passes(sequence):
                self.available += 1
                self.available_bytes += self.ring.weight_at(sequence)
            if sequence == self.carried_before:
                self.available += 1
                self.available_bytes += self.carried_weight()
        self.get_sequence = self.ack_sequence
        if self.passed is not None and self.passed_sequence > self.ack_sequence:
            self.passed = {}
            self.add_passed(self.ring.boundaries_before(self.ack_sequence))
            self.passed_sequence = self.ack_sequence
        self.check()

    cpdef check(self):
        """Assert what always holds between two calls."""
        assert self.ring.free_sequence <= self.ack_sequence <= self.get_sequence
        assert self.get_sequence <= self.scan_sequence <= self.ring.put_sequence
        assert self.available <= self.ring.put_sequence - self.get_sequence + 1
        assert self.verdicts != NULL or (
            self.available == self.scan_sequence - self.get_sequence
        )


cdef inline uint64_t entry_bytes(Ring ring, uint64_t sequence) noexcept:
    cdef Slot* slot = ring.slot(sequence)
    cdef Block block = <Block>slot.block
    return block.records[slot.index].end - block.begin_of(slot.index)


def _longer(uint64_t first, bytes mask, answer):
    """Return a mask's first table id and its bytes, extended by an answer."""
    cdef uint64_t lowest
    lowest, more = answer
    if lowest > first:
        mask = mask[lowest - first:]
        first = lowest
    return first, mask + more


def mask_of(table_filter, table_ids, first):
    """Return the lowest existing table id, and a byte per table id from `first` on.

    It is 1 where the filter passes the table. When the lowest id is above `first`, the
    bytes begin with it.
    """
    lowest, names = table_ids.since(first)
    return lowest, bytes([1 if table_filter(each) else 0 for each in names])


def _everything(names):
    return True
