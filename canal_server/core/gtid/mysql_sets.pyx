# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""GTID sets of MySQL, with tags. `MariaGtidSet` can be imported from here, too.

Text is canonical: lower case, sorted, adjacent numbers joined, no blanks. The usual
growth, by the number after the last one, is patched into the text of the last call. A
set belongs to one thread at a time; other threads get copies.
"""

import re
import struct

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcmp, memcpy, memmove

from canal_server.core.digits cimport put_u64
from canal_server.core.gtid.gtid_text cimport with_gap
from canal_server.core.gtid.uuid_text cimport put_uuid

# Numbers are below 2^63 - 1 as in MySQL, so that an end fits as well.
cdef int64_t GNO_MAX = 0x7FFFFFFFFFFFFFFE
# Of "uuid:tag:": 36 + 1 + 32 + 1; of ":first-last": twice 19 + 2.
cdef enum:
    GROUP_TEXT_MAX = 72
    INTERVAL_TEXT_MAX = 41

# The Python name; the cimported one is for other compiled modules only.
globals()["MariaGtidSet"] = MariaGtidSet

_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}\Z")
_INTERVAL = re.compile(r"(\d{1,19})(?:\s*-\s*(\d{1,19}))?\Z", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{32}\Z")
_TAGGED = 1  # first and last byte of the head of an encoded set that has tags


cdef int order(const Group* group, const uint8_t* sid, const uint8_t* tag,
               size_t tag_n) noexcept nogil:
    """Compare a group's uuid and tag with others: below, at or above 0."""
    cdef int found = memcmp(group.sid, sid, SID_BYTES)
    if found:
        return found
    found = memcmp(group.tag, tag, min(group.tag_n, tag_n))
    if found:
        return found
    return <int>group.tag_n - <int>tag_n


cdef uint32_t first_reaching(const Group* group, int64_t stop) noexcept nogil:
    """Return the index of the first interval that ends at or after `stop`."""
    cdef uint32_t low = 0
    cdef uint32_t high = group.count
    cdef uint32_t middle
    while low < high:
        middle = (low + high) // 2
        if group.intervals[middle].stop < stop:
            low = middle + 1
        else:
            high = middle
    return low


cdef Interval* replace_intervals(Group* group, uint32_t first, uint32_t stop,
                                 uint32_t by) noexcept nogil:
    """Replace first <= i < stop by `by` intervals; returns the first of them.

    The caller fills them in. NULL when there is no memory.
    """
    cdef uint32_t count = group.count - (stop - first) + by
    cdef Interval* memory
    if count > group.capacity:
        memory = <Interval*>realloc(group.intervals, 2 * count * sizeof(Interval))
        if memory == NULL:
            return NULL
        group.intervals = memory
        group.capacity = 2 * count
    memmove(&group.intervals[first + by], &group.intervals[stop],
            (group.count - stop) * sizeof(Interval))
    group.count = count
    return &group.intervals[first]


cdef int insert_interval(Group* group, int64_t start, int64_t stop) noexcept nogil:
    """Add start <= n < stop to a group; -1 when there is no memory."""
    cdef uint32_t low = first_reaching(group, start)  # the first that may touch
    cdef uint32_t end = low
    cdef Interval* joined
    while end < group.count and group.intervals[end].start <= stop:
        end += 1
    if end > low:
        start = min(start, group.intervals[low].start)
        stop = max(stop, group.intervals[end - 1].stop)
    joined = replace_intervals(group, low, end, 1)
    if joined == NULL:
        return -1
    joined.start = start
    joined.stop = stop
    return 0


cdef int append_interval(Group* group, int64_t start, int64_t stop) noexcept nogil:
    """Append start <= n < stop, in order or not; -1 when there is no memory."""
    cdef Interval* last
    if group.count:
        last = &group.intervals[group.count - 1]
        if last.start <= start <= last.stop:
            last.stop = max(last.stop, stop)
            return 0
    last = replace_intervals(group, group.count, group.count, 1)
    if last == NULL:
        return -1
    last.start = start
    last.stop = stop
    return 0


cdef int by_start(const void* one, const void* other) noexcept nogil:
    cdef int64_t first = (<const Interval*>one).start
    cdef int64_t second = (<const Interval*>other).start
    return (first > second) - (first < second)


cdef int by_name(const void* one, const void* other) noexcept nogil:
    cdef const Group* group = <const Group*>other
    return order(<const Group*>one, group.sid, group.tag, group.tag_n)


cdef void sort_intervals(Group* group) noexcept nogil:
    """Sort the intervals, and join those that touch."""
    cdef uint32_t count = group.count
    cdef uint32_t i = 1
    while i < count and group.intervals[i - 1].stop < group.intervals[i].start:
        i += 1
    if i >= count:
        return  # the usual case: servers write them in order
    qsort(group.intervals, count, sizeof(Interval), by_start)
    group.count = 1
    for i in range(1, count):
        # There is room: it replaces an interval that was read already.
        append_interval(group, group.intervals[i].start, group.intervals[i].stop)


cdef bint covers(const Group* group, int64_t start, int64_t stop) noexcept nogil:
    """Return whether all of start <= n < stop are in the group."""
    cdef uint32_t i = first_reaching(group, stop)
    return i < group.count and group.intervals[i].start <= start


cdef bint is_tag(const uint8_t* tag, size_t n) noexcept nogil:
    """Return whether these bytes are empty or a valid tag."""
    cdef size_t i
    if n > TAG_BYTES_MAX:
        return False
    for i in range(n):
        if not (
            97 <= tag[i] <= 122 or tag[i] == 95 or (i > 0 and 48 <= tag[i] <= 57)
        ):
            return False
    return True


cdef class GtidSet(GtidText):
    """A set of MySQL's GTIDs: numbers by server uuid and tag.

    Text is `uuid:1-5:7:tag:1-3,uuid2:5`.
    """

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.count):
            free(self.groups[i].intervals)
        free(self.groups)

    @classmethod
    def parse(cls, str text):
        """Read a set as people and servers write it.

        Accepts blanks, line ends, upper case, empty items and a repeated uuid. Raises
        ValueError that names the invalid item.
        """
        cdef GtidSet found = cls()
        for item in text.lower().split(","):
            if not item.strip():
                continue
            head, *parts = (part.strip() for part in item.split(":"))
            digits = head.replace("-", "")
            if not _HEX.match(digits) or not parts:
                raise ValueError(
                    f"not a GTID: {item.strip()!r}, expected uuid:first-last"
                )
            sid, tag = bytes.fromhex(digits), b""
            for part in parts:
                if _TAG.match(part):
                    tag = part.encode()
                    continue
                numbers = _INTERVAL.match(part)
                first = int(numbers[1]) if numbers else 0
                last = int(numbers[2] or first) if numbers else 0
                if not 0 < first <= last <= GNO_MAX:
                    raise ValueError(f"not a GTID: {part!r} in {item.strip()!r}")
                found.append_range(sid, tag, len(tag), first, last + 1)
        return found.sorted_up()

    @classmethod
    def decode_previous_gtids(cls, bytes body):
        """Read the body of a PREVIOUS_GTIDS event (without checksum), either format.

        `encode` writes the same. A hostile source may send the numbers in any order:
        they are sorted once. Raises ValueError when it is truncated or inconsistent.
        """
        cdef GtidSet found = cls()
        cdef Py_ssize_t at = 8
        try:
            (head,) = struct.unpack_from("<Q", body)
            tagged = head >> 56 == _TAGGED
            groups = head >> 8 & 0xFFFFFFFFFFFF if tagged else head
            for _ in range(groups):
                (sid,) = struct.unpack_from("16s", body, at)
                at += SID_BYTES
                tag = b""
                if tagged:
                    # The length is a number of 7 bits, as the lowest bit says.
                    (size,) = struct.unpack_from("B", body, at)
                    if size & 1:
                        raise ValueError(f"a tag of {size} bytes in a GTID set")
                    size >>= 1
                    (tag,) = struct.unpack_from(f"{size}s", body, at + 1)
                    if tag and not _TAG.match(tag.decode("latin-1")):
                        raise ValueError(f"a tag {tag!r} in a GTID set")
                    at += 1 + size
                (intervals,) = struct.unpack_from("<Q", body, at)
                at += 8
                for _ in range(intervals):
                    first, stop = struct.unpack_from("<QQ", body, at)
                    at += 16
                    if not 0 < first < stop <= GNO_MAX + 1:
                        raise ValueError(f"numbers {first}-{stop} in a GTID set")
                    found.append_range(sid, tag, len(tag), first, stop)
        except struct.error:
            raise ValueError(f"a GTID set is truncated after {len(body)} bytes") from None
        return found.sorted_up()

    def add(self, bytes sid, int64_t gno, str tag=""):
        """Add one number; `sid` has 16 bytes. Raises ValueError for an invalid one."""
        cdef bytes name = tag.encode()
        if len(sid) != SID_BYTES or gno < 1 or (tag and not _TAG.match(tag)):
            raise ValueError(f"not a GTID: {sid.hex()}:{tag}:{gno}")
        if self.add_c(sid, name, len(name), gno) != 0:
            raise MemoryError("no memory for a GTID set")

    cdef Group* group_of(self, const uint8_t* sid, const uint8_t* tag, size_t tag_n,
                         bint create) noexcept nogil:
        """Return the group, NULL when it does not exist or there is no memory."""
        cdef uint32_t low = 0
        cdef uint32_t high = self.count
        cdef uint32_t middle
        cdef int found
        if (self.recent < self.count
                and order(&self.groups[self.recent], sid, tag, tag_n) == 0):
            return &self.groups[self.recent]
        while low < high:
            middle = (low + high) // 2
            found = order(&self.groups[middle], sid, tag, tag_n)
            if found == 0:
                self.recent = middle
                return &self.groups[middle]
            if found < 0:
                low = middle + 1
            else:
                high = middle
        if not create:
            return NULL
        self.recent = low
        return self.new_group(low, sid, tag, tag_n)

    cdef Group* new_group(self, uint32_t at, const uint8_t* sid, const uint8_t* tag,
                          size_t tag_n) noexcept nogil:
        """Insert an empty group; NULL when there is no memory, or the tag is
        invalid."""
        cdef Group* memory
        if not is_tag(tag, tag_n):
            return NULL
        memory = <Group*>with_gap(self.groups, sizeof(Group), self.count,
                                  &self.capacity, at)
        if memory == NULL:
            return NULL
        self.groups = memory
        memory = &self.groups[at]
        memcpy(memory.sid, sid, SID_BYTES)
        memcpy(memory.tag, tag, tag_n)
        memory.tag_n = <uint32_t>tag_n
        memory.intervals = NULL
        memory.count = memory.capacity = 0
        memory.number_n = 0
        self.count += 1
        self.rendered = False
        return memory

    cdef int add_c(self, const uint8_t* sid, const uint8_t* tag, size_t tag_n,
                   int64_t gno) noexcept nogil:
        cdef Group* group
        cdef Interval* last
        cdef uint8_t[20] digits
        cdef int n
        if not 0 < gno <= GNO_MAX:
            return 0
        group = self.group_of(sid, tag, tag_n, True)
        if group == NULL:
            return -1
        if group.count == 0 or group.intervals[group.count - 1].stop != gno:
            self.rendered = False
            return insert_interval(group, gno, gno + 1)
        last = &group.intervals[group.count - 1]
        last.stop = gno + 1
        if self.rendered:
            # Faster than rendering, if the last number has as many digits as before.
            n = <int>(put_u64(digits, gno) - digits)
            if n == group.number_n:
                memcpy(self.memory + group.number_offset, digits, n)
            else:
                self.rendered = False
        return 0

    cdef int append_range(self, const uint8_t* sid, const uint8_t* tag, size_t tag_n,
                          int64_t start, int64_t stop) except -1:
        """Append start <= n < stop: call `sorted_up` before reading.

        Inserting each in its order instead would move all later ones each time.
        """
        cdef Group* group = NULL
        if self.count:
            group = &self.groups[self.count - 1]
        if group == NULL or order(group, sid, tag, tag_n) != 0:
            group = self.new_group(self.count, sid, tag, tag_n)
        if group == NULL or append_interval(group, start, stop) != 0:
            raise MemoryError("no memory for a GTID set")
        return 0

    cdef GtidSet sorted_up(self):
        """Return this set, with what was appended in its order."""
        cdef uint32_t i
        cdef Group* group
        for i in range(1, self.count):
            if by_name(&self.groups[i - 1], &self.groups[i]) >= 0:
                self.sort_groups()
                break
        for i in range(self.count):
            sort_intervals(&self.groups[i])
        self.recent = 0
        self.rendered = False
        return self

    cdef int sort_groups(self) except -1:
        """Sort the groups, and join those of one name."""
        cdef uint32_t count = self.count
        cdef uint32_t kept = 1
        cdef uint32_t i, j
        cdef Group* group
        qsort(self.groups, count, sizeof(Group), by_name)
        for i in range(1, count):
            group = &self.groups[i]
            if by_name(&self.groups[kept - 1], group) != 0:
                if kept != i:
                    self.groups[kept] = group[0]
                    group.intervals = NULL
                    group.count = 0
                kept += 1
                continue
            for j in range(group.count):
                if append_interval(&self.groups[kept - 1], group.intervals[j].start,
                                   group.intervals[j].stop) != 0:
                    raise MemoryError("no memory for a GTID set")
            free(group.intervals)
            group.intervals = NULL
            group.count = 0
        self.count = kept
        return 0

    cdef int add_run(self, const uint8_t* sid, const uint8_t* tag, size_t tag_n,
                     int64_t start, int64_t stop) noexcept nogil:
        cdef Group* group = self.group_of(sid, tag, tag_n, True)
        self.rendered = False
        return -1 if group == NULL else insert_interval(group, start, stop)

    cdef size_t text_room(self) noexcept nogil:
        cdef size_t room = 0
        cdef uint32_t i
        for i in range(self.count):
            room += GROUP_TEXT_MAX + self.groups[i].count * INTERVAL_TEXT_MAX
        return room

    cdef uint8_t* put_text(self, uint8_t* p) noexcept nogil:
        cdef const uint8_t* start = p
        cdef uint32_t i, j
        cdef Group* group
        for i in range(self.count):
            group = &self.groups[i]
            if i == 0 or memcmp(group.sid, self.groups[i - 1].sid, SID_BYTES) != 0:
                if i:
                    p[0] = 44
                    p += 1
                p = put_uuid(p, group.sid)
            if group.tag_n:
                p[0] = 58
                memcpy(p + 1, group.tag, group.tag_n)
                p += 1 + group.tag_n
            for j in range(group.count):
                p = put_interval(p, start, &group.intervals[j], group)
        return p

    def union(self, GtidSet other not None):
        """Return the set of what is in either."""
        cdef GtidSet found = type(self)()
        cdef uint32_t i = 0
        cdef uint32_t j = 0
        cdef int lower
        while i < self.count or j < other.count:
            if i == self.count:
                lower = 1
            elif j == other.count:
                lower = -1
            else:
                lower = by_name(&self.groups[i], &other.groups[j])
            found.append_both(&self.groups[i] if lower <= 0 else NULL,
                              &other.groups[j] if lower >= 0 else NULL)
            i += lower <= 0
            j += lower >= 0
        return found

    cdef int append_both(self, Group* one, Group* other) except -1:
        """Append the numbers of two groups of one name in order; one may be NULL."""
        cdef Group* group = other if one == NULL else one
        cdef uint32_t ones = 0 if one == NULL else one.count
        cdef uint32_t others = 0 if other == NULL else other.count
        cdef uint32_t i = 0
        cdef uint32_t j = 0
        cdef Interval* lower
        while i < ones or j < others:
            if j == others or (
                i < ones and one.intervals[i].start <= other.intervals[j].start
            ):
                lower = &one.intervals[i]
                i += 1
            else:
                lower = &other.intervals[j]
                j += 1
            self.append_range(group.sid, group.tag, group.tag_n, lower.start,
                              lower.stop)
        return 0

    def subtract(self, GtidSet other not None):
        """Return the set of what is in this one and not in the other."""
        cdef GtidSet found = type(self)()
        cdef Group* group
        cdef uint32_t i
        for i in range(self.count):
            group = &self.groups[i]
            found.append_without(
                group, other.group_of(group.sid, group.tag, group.tag_n, False)
            )
        return found

    cdef int append_without(self, Group* group, Group* other) except -1:
        """Append the numbers of a group that are not in the other, which may be NULL."""
        cdef uint32_t others = 0 if other == NULL else other.count
        cdef uint32_t i
        cdef uint32_t j = 0
        cdef int64_t start, stop
        for i in range(group.count):
            start, stop = group.intervals[i].start, group.intervals[i].stop
            while j < others and other.intervals[j].stop <= start:
                j += 1
            while start < stop:
                if j == others or other.intervals[j].start >= stop:
                    self.append_range(group.sid, group.tag, group.tag_n, start, stop)
                    break
                if other.intervals[j].start > start:
                    self.append_range(group.sid, group.tag, group.tag_n, start,
                                      other.intervals[j].start)
                start = other.intervals[j].stop
                if start < stop:
                    j += 1
        return 0

    def beside(self, GtidSet other not None):
        """Return what is not in another set, and will not follow in it either.

        These are servers and tags that the other does not know, and numbers below its
        first one for those that it knows. A number that is missing between others may
        belong to a replica that executes several at a time, and follow later.
        """
        cdef GtidSet found = type(self)()
        cdef Group* group
        cdef Group* known
        cdef int64_t stop
        cdef uint32_t i, j
        for i in range(self.count):
            group = &self.groups[i]
            known = other.group_of(group.sid, group.tag, group.tag_n, False)
            stop = GNO_MAX + 1
            if known != NULL:
                stop = known.intervals[0].start
            for j in range(group.count):
                if group.intervals[j].start < stop:
                    found.append_range(group.sid, group.tag, group.tag_n,
                                       group.intervals[j].start,
                                       min(stop, group.intervals[j].stop))
        return found.subtract(other)

    def contains(self, GtidSet other not None):
        """Return whether all of the other set is in this one."""
        cdef Group* group
        cdef Group* found
        cdef uint32_t i, j
        for i in range(other.count):
            group = &other.groups[i]
            found = self.group_of(group.sid, group.tag, group.tag_n, False)
            if found == NULL:
                return False
            for j in range(group.count):
                if not covers(found, group.intervals[j].start, group.intervals[j].stop):
                    return False
        return True

    def encode(self):
        """Return the bytes for COM_BINLOG_DUMP_GTID.

        A set with tags has the format that servers know since MySQL 8.3.
        """
        cdef Group* group
        cdef uint32_t i, j
        tagged = any([self.groups[i].tag_n != 0 for i in range(self.count)])
        head = count = int(self.count)
        if tagged:
            head = _TAGGED << 56 | count << 8 | _TAGGED
        parts = [struct.pack("<Q", head)]
        for i in range(self.count):
            group = &self.groups[i]
            parts.append(group.sid[:SID_BYTES])
            if tagged:
                parts.append(bytes([group.tag_n << 1]) + group.tag[:group.tag_n])
            parts.append(struct.pack("<Q", group.count))
            for j in range(group.count):
                parts.append(
                    struct.pack("<qq", group.intervals[j].start, group.intervals[j].stop)
                )
        return b"".join(parts)


cdef uint8_t* put_interval(uint8_t* p, const uint8_t* start, const Interval* interval,
                           Group* group) noexcept nogil:
    """Write `:first-last` or `:only`; notes the offset of the last number."""
    cdef uint8_t* number
    p[0] = 58
    p = put_u64(p + 1, interval.start)
    group.number_n = 0
    if interval.stop > interval.start + 1:
        p[0] = 45
        number = p + 1
        p = put_u64(number, interval.stop - 1)
        group.number_offset = number - start
        group.number_n = <int>(p - number)
    return p
