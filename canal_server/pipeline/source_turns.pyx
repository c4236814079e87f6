# cython: language_level=3
"""Where the stream of one source may be cut, to put another's in between.

A *unit* is never cut: a transaction, or a statement outside of one. Its time is that of
its last record, when it was committed. Heartbeats belong to what follows.

Whose turn it is is decided in `source_merge`.
"""

from libc.stdint cimport uint32_t

from canal_server.core.blocks cimport KIND_BEGIN, KIND_HEARTBEAT, Block, Record
from canal_server.core.runs cimport continues_after


def first_time(list spans):
    """Return the time, s, of the first unit, by its last record here if it is open."""
    cdef Block block
    cdef uint32_t i, first, stop
    cdef uint32_t time = 0
    cdef bint is_open = False
    cdef Record* record
    for block, first, stop in spans:
        check(block, stop)
        for i in range(first, stop):
            record = &block.records[i]
            if record.kind == KIND_BEGIN and is_open:
                return time  # the one before has no end
            time = record.time
            if record.kind == KIND_HEARTBEAT:
                continue
            is_open = continues_after(record)
            if not is_open:
                return time
    return time


def cut(list spans, limit):
    """Return the spans up to the first unit younger than `limit`, and the rest.

    The first unit is among the former whatever its time is; None sets no limit. The
    last unit may be incomplete, it ends with the spans then.
    """
    cdef Block block
    cdef uint32_t i, first, stop
    cdef uint32_t limit_s
    cdef bint is_open = False
    cdef bint any_whole = False
    cdef Record* record
    # Where the current unit begins.
    cdef Py_ssize_t unit_at = 0
    cdef uint32_t unit_first = 0
    cdef Py_ssize_t at
    cdef bint in_unit = False
    if limit is None:
        return spans, []
    limit_s = limit
    for at, (block, first, stop) in enumerate(spans):
        check(block, stop)
        for i in range(first, stop):
            record = &block.records[i]
            if record.kind == KIND_BEGIN and is_open:
                in_unit = is_open = False
                any_whole = True
            if not in_unit:
                in_unit = True
                unit_at, unit_first = at, i
            if record.kind == KIND_HEARTBEAT:
                continue
            is_open = continues_after(record)
            if not is_open:
                if any_whole and record.time > limit_s:
                    return cut_at(spans, unit_at, unit_first)
                any_whole = True
                in_unit = False
    # A unit without its end counts by its last record.
    if in_unit and any_whole and record.time > limit_s:
        return cut_at(spans, unit_at, unit_first)
    return spans, []


def is_open_after(list spans):
    """Return whether a transaction continues after the last of the spans."""
    cdef Block block
    cdef uint32_t i, first, stop
    for block, first, stop in reversed(spans):
        check(block, stop)
        i = stop
        while i > first:
            i -= 1
            if block.records[i].kind != KIND_HEARTBEAT:
                return continues_after(&block.records[i])
    return False


def last_time(list spans):
    """Return the time, s, of the last record that is no heartbeat; 0: there is none."""
    cdef Block block
    cdef uint32_t i, first, stop
    for block, first, stop in reversed(spans):
        check(block, stop)
        i = stop
        while i > first:
            i -= 1
            if block.records[i].kind != KIND_HEARTBEAT:
                return block.records[i].time
    return 0


cdef int check(Block block, uint32_t stop) except -1:
    if stop > block.count:
        raise IndexError(f"record {stop} of {block!r}")
    return 0


cdef tuple cut_at(list spans, Py_ssize_t at, uint32_t i):
    """Return the spans before record i of span `at`, and those from it on."""
    block, first, stop = spans[at]
    head = spans[:at]
    if i > first:
        head.append((block, first, i))
    return head, [(block, i, stop), *spans[at + 1:]]
