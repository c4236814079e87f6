# cython: language_level=3
"""A client's place in the ring, and what its filter leaves of the entries there.

::

    ack_sequence <= get_sequence <= bound <= scan_sequence <= put_sequence
        | in open batches | to be got | undecided

A cursor with a filter asks it once about each table. That may take long, so that it is
never done here: a cursor that meets a table which its filter was not asked about *waits*
there (`asks`) until somebody who holds no lock has asked, and hands in the answer with
`learn`.

A cursor with a filter judges each entry once, when it scans it, and keeps the
verdict until the entry is acked: after a rollback the client gets the same entries
again. Transactions without a wanted row are thinned as in the sink; a BEGIN is
undecided until a row passes or the END comes.

Leaves out locks and waiting: whoever calls holds the store's lock.
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
from canal_server.core.runs cimport Runs, is_ddl
from canal_server.store.ring cimport Ring, Slot
from canal_server.store.fetched cimport Fetched

from canal_server.errors import StoreError
from canal_server.model.positions import binlog_file_number

cdef uint64_t NEVER = UINT64_MAX  # a sequence that no entry has
cdef uint32_t MEMBERS = 64 + 1  # of a group, by numbers from 1 on


cdef struct After:
    # The place in a source's binlog that a client is to begin after.
    bint known
    bint seeking  # no entry behind it was seen so far
    uint64_t file_number
    uint64_t offset


cdef class Cursor:
    """Get and ack sequence of one client, and its filter.

    `table_filter` is asked once per subject, None takes everything. `after` is a binlog
    file's number and an offset: what lies at or before it is skipped. In a group it is
    a dict of these by member.
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

    # The place to begin after, until an entry behind it was seen.
    cdef bint seeking
    cdef uint64_t after_file_number
    cdef uint64_t after_offset
    cdef After* afters          # of a group: by member; NULL: no group

    # Of a group: the last boundary of each source before `passed_sequence`.
    cdef dict passed
    cdef uint64_t passed_sequence

    # The filter: passes (1) or not (0) by subject, and by slot what was decided.
    cdef bytes mask           # of the subjects from `mask_first` on
    cdef uint64_t mask_first
    cdef uint8_t* verdicts  # NULL: no filter
    cdef readonly bint asks   # the subject at the scan sequence is not in the mask
    cdef bint learned         # since it was not
    cdef object next_accepts  # another filter, until it was asked about all there is
    cdef bytes next_mask      # None: there is no other filter
    cdef uint64_t next_first

    # The transaction that is being scanned.
    cdef Emptiness empties
    cdef bint begun           # its BEGIN came and its END did not
    cdef bint begin_open      # nothing has decided about its BEGIN
    cdef uint64_t begin_sequence
    cdef uint32_t begin_time
    cdef bint begin_carried   # the undecided BEGIN is the carried one
    cdef bint rows_passed

    # A BEGIN that left the ring undecided is carried here, and given out just before
    # the entry `carried_before` once there is one. There is one at most: the ring
    # lets no second BEGIN go before that entry is acked.
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
        self.mask_first, self.mask = 1, b""  # 0 is no subject that it decides on
        self.table_filter = table_filter
        self.choose_filter()

    def __dealloc__(self):
        free(self.verdicts)
        free(self.afters)

    cdef int init_group(self, dict after) except -1:
        cdef uint32_t member
        self.afters = <After*>calloc(MEMBERS, sizeof(After))
        if self.afters == NULL:
            raise MemoryError(f"no memory for the places of {MEMBERS} sources")
        for member, (number, offset) in after.items():
            if member >= MEMBERS:
                raise ValueError(f"member {member} of a group, only {MEMBERS - 1} may be")
            self.afters[member] = After(True, True, number, offset)
        self.passed = {}
        self.add_passed(self.ring.places_before(self.get_sequence))
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
        """Return the filter that is to be asked, and the first subject to ask about."""
        if self.next_mask is not None:
            return self.next_accepts, self.next_first + <uint64_t>len(self.next_mask)
        return self.table_filter, self.mask_first + <uint64_t>len(self.mask)

    def learn(self, question, answer):
        """Note what the filter said in answer to `question`: what `mask_of` returns.

        Without effect when the cursor has another question by now, as it has another
        filter or somebody else was faster. What was said of subjects that are forgotten
        is forgotten as well.
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
        """Tell whether the mask says something about a subject."""
        return table_ordinal == 0 or (
            self.mask_first <= table_ordinal < self.mask_first + <uint64_t>len(self.mask)
        )

    def replace_filter(self, table_filter):
        """Judge everything that is not acked once more, by another filter.

        That waits until the filter was asked about all tables in the ring.
        """
        if table_filter == (self.table_filter if self.next_mask is None else self.next_accepts):
            return  # methods of one object are equal, not the same
        self.next_accepts = self.next_mask = None
        self.asks = self.learned = False
        if table_filter == self.table_filter:
            self.scan()
        elif table_filter is None:
            self.use_filter(None, 1, b"")
        else:
            self.next_accepts, self.next_first, self.next_mask = table_filter, 1, b""
            self.use_next_filter()

    cdef int use_next_filter(self) except -1:
        """Judge by the next filter, if it says something about all that is not acked."""
        cdef uint64_t sequence, table_ordinal
        cdef uint64_t stop = self.next_first + <uint64_t>len(self.next_mask)
        for sequence in range(self.ack_sequence, self.ring.put_sequence):
            table_ordinal = self.ring.record(sequence).table_ordinal
            if table_ordinal and not self.next_first <= table_ordinal < stop:
                self.asks = True
                return 0
        table_filter, mask = self.next_accepts, self.next_mask
        self.next_accepts = self.next_mask = None
        self.asks = False
        self.use_filter(table_filter, self.next_first, mask)
        return 0

    cdef int use_filter(self, table_filter, uint64_t mask_first, bytes mask) except -1:
        self.table_filter = table_filter
        if table_filter is None and self.carried_block is not None:
            # The carried BEGIN is for a cursor with a filter to give out.
            self.table_filter = _everything
        self.mask_first, self.mask = mask_first, mask
        self.choose_filter()
        self.scan_sequence = self.ack_sequence
        self.available = self.available_bytes = 0
        # A carried BEGIN is that of the transaction in which the ack stands. Without
        # one its rows may have been delivered, so its END must come.
        self.begun = self.begin_open = self.carried_block is not None
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
        """Judge the entries put since the last time, as far as the filter was asked."""
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

    cpdef forget_after(self, uint32_t member=0):
        """Give out everything: the place to begin after is none of this source.

        In a group, of one of its sources.
        """
        self.seeking = False
        if self.afters != NULL and member < MEMBERS:
            self.afters[member].known = self.afters[member].seeking = False

    cdef int seek(self) except -1:
        """Skip entries at or before `after`; no batch is open so far."""
        while self.scan_sequence < self.ring.put_sequence:
            if self.is_behind_after(self.scan_sequence):
                self.seeking = False
                return 0
            self.scan_bytes += self.ring.weight_at(self.scan_sequence)
            self.scan_sequence += 1
            self.get_sequence = self.ack_sequence = self.scan_sequence
        return 0

    cdef bint is_to_skip(self, uint64_t sequence) noexcept:
        """Tell whether an entry of a group is at or before its source's place."""
        cdef After* after
        after = &self.afters[(<Block>self.ring.slot(sequence).block).member % MEMBERS]
        if after.seeking:
            after.seeking = not self.is_behind(sequence, after.file_number, after.offset)
        return after.seeking

    cdef bint is_behind_after(self, uint64_t sequence) noexcept:
        return self.is_behind(sequence, self.after_file_number, self.after_offset)

    cdef bint is_behind(
        self, uint64_t sequence, uint64_t file_number, uint64_t offset
    ) noexcept:
        cdef Record* record = self.ring.record(sequence)
        cdef uint64_t number = (<Block>self.ring.slot(sequence).block).file_number
        if number != file_number:
            return number > file_number
        if record.offset != offset:
            return record.offset > offset
        # A BEGIN is acked before its rows. Entries of a compressed transaction share
        # its offset, so that the ack does not tell how many of them came.
        return record.kind == KIND_BEGIN or record.ordinal > 0

    cdef int scan_filtered(self) except -1:
        cdef uint64_t mask = self.ring.size - 1
        cdef Record* record
        while self.scan_sequence < self.ring.put_sequence:
            record = self.ring.record(self.scan_sequence)
            if not self.knows(record.table_ordinal):
                if self.learned:
                    raise IndexError(
                        f"subject {record.table_ordinal} is none of the {len(self.mask)} "
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
        """Tell whether the entry at the scan sequence passes."""
        cdef bint passes
        if record.kind == KIND_BEGIN:
            if self.begin_open:
                self.drop_begin()
            self.begun = self.begin_open = True
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
            self.begun = self.rows_passed = False
            return passes
        if record.kind == KIND_HEARTBEAT:
            return True
        if record.table_ordinal and not <uint8_t>self.mask[record.table_ordinal - self.mask_first]:
            return False
        self.release_begin()
        # A DDL outside of BEGIN and END is complete in itself.
        if self.begun or not is_ddl(record):
            self.rows_passed = True
        return True

    cdef int pass_entry(self, uint64_t sequence) except -1:
        self.verdicts[sequence & (self.ring.size - 1)] = 1
        if sequence >= self.get_sequence:
            self.available += 1
            self.available_bytes += self.ring.weight_at(sequence)
        return 0

    cdef int release_begin(self) except -1:
        """Let the undecided BEGIN pass, before the entry at the scan sequence."""
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

        To make room, an undecided BEGIN is taken out of the ring as well.
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
            assert self.carried_block is None, "its entry was acked, else not here"
            slot = self.ring.slot(self.begin_sequence)
            self.carried_block, self.carried_index = <Block>slot.block, slot.index
            self.begin_carried = True
            self.get_sequence = self.skip_rejected(self.get_sequence)
        self.ack_sequence = self.get_sequence
        if self.passed is not None:
            self.pass_places(self.get_sequence)

    cdef int pass_places(self, uint64_t sequence) except -1:
        """Take note of the boundaries of a group's sources before a sequence."""
        if sequence > self.passed_sequence:
            self.add_passed(self.ring.places_between(self.passed_sequence, sequence))
            self.passed_sequence = sequence
        return 0

    cdef int add_passed(self, dict places) except -1:
        """Keep places, but for those that the client is to begin after, or older ones.

        They come to the ring once more for the sake of others.
        """
        cdef uint32_t member
        cdef After* after
        for member, place in places.items():
            after = &self.afters[member % MEMBERS]
            if not after.known or (binlog_file_number(place[0]), place[1]) > (
                after.file_number, after.offset
            ):
                self.passed[member] = place
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
        """Return when the first entry was put that is not acked; there must be one."""
        assert self.ack_sequence < self.ring.put_sequence
        return self.ring.slot(self.ack_sequence).put_ms

    def resume_place(self):
        """Return the boundary of transactions behind which all unacked entries lie.

        None when the ring had none so far. A carried BEGIN lies behind it as well: no
        boundary is between a BEGIN and what is undecided.
        """
        return self.ring.boundary_before(self.ack_sequence)

    def resume_places(self):
        """Return the same for each source of a group, by member, where there is one."""
        return self.ring.places_before(self.ack_sequence)

    cpdef Fetched take(
        self, uint64_t count_max, uint64_t bytes_max, uint64_t size_max,
        bint isolate_ddl,
    ):
        """Take available entries; None when there are none.

        At least one; else no more than `count_max`, none after the one with which
        their weight exceeds `bytes_max`, none with which their bytes exceed
        `size_max`. A carried BEGIN comes together with the entry behind it.
        """
        cdef Ring ring = self.ring
        cdef uint64_t bound = self.bound()
        cdef uint64_t sequence = self.skip_rejected(self.get_sequence)
        cdef uint64_t weight = 0
        cdef Fetched taken = Fetched.__new__(Fetched)
        cdef Record* record
        taken.runs = Runs()
        taken.first_sequence = sequence
        while sequence < bound:
            record = ring.record(sequence)
            if taken.count and (
                taken.count >= count_max
                or weight > bytes_max
                or taken.size + entry_bytes(ring, sequence) > size_max
                or (isolate_ddl and is_ddl(record))
            ):
                break
            weight += self.take_one(taken, sequence)
            sequence = self.skip_rejected(sequence + 1)
            if isolate_ddl and is_ddl(record):
                break
        if taken.count == 0:
            return None
        self.available -= taken.count
        self.available_bytes -= weight
        self.get_sequence = sequence
        taken.last_sequence = sequence - 1
        if self.passed is not None:
            self.pass_places(sequence)
            taken.places = dict(self.passed)
        self.check()
        return taken

    cdef uint64_t take_one(self, Fetched taken, uint64_t sequence) except? 0:
        """Add an entry, and the carried BEGIN if it goes before it."""
        cdef Slot* slot = self.ring.slot(sequence)
        cdef Record* record = self.ring.record(sequence)
        cdef uint64_t weight = self.ring.weight_at(sequence)
        if sequence == self.carried_before:
            taken.add(<PyObject*>self.carried_block, self.carried_index)
            weight += self.carried_weight()
        taken.add(slot.block, slot.index)
        self.got_rows += record.rows
        self.got_time = record.time
        return weight

    cpdef ack(self, sequence):
        """Move the ack sequence behind this one.

        Raises StoreError when it was not got, or was acked before.
        """
        if not self.ack_sequence <= sequence < self.get_sequence:
            raise StoreError(
                f"client {self.client_id} acks sequence {sequence}, which is not among "
                f"the unacked {self.ack_sequence} to {self.get_sequence - 1}; "
                "roll back and get again"
            )
        if self.carried_before <= sequence:
            self.carried_block = None
            self.carried_before = NEVER
        self.ack_sequence = sequence + 1
        self.check()

    cpdef rollback(self):
        """Put the get sequence back to the ack sequence."""
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
            self.add_passed(self.ring.places_before(self.ack_sequence))
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
    """Return a mask's first subject and its bytes with those of an answer."""
    cdef uint64_t lowest
    lowest, more = answer
    if lowest > first:
        mask = mask[lowest - first:]
        first = lowest
    return first, mask + more


def mask_of(table_filter, table_ids, first):
    """Return the lowest subject there is, and a byte per subject from `first` on.

    It is 1 where the filter accepts the subject. When the lowest is above `first`, the
    bytes begin with it.
    """
    lowest, names = table_ids.since(first)
    return lowest, bytes([1 if table_filter(each) else 0 for each in names])


def _everything(names):
    return True
