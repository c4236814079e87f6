# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Text of the differences in a partial update of a JSON column.

The new value is not the document but an expression on the column, in canal's form:
`JSON_REMOVE(JSON_REPLACE(c, '$.a', 1, '$.b', 2), '$.d')`. Paths are copied between the
quotes unchanged.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from canal_server.core.wire cimport Input, Output, ensure, need, put_bytes, take_packed
from canal_server.decoder.text.charset_text cimport grow_heap, put_utf8
from canal_server.decoder.text.json_text cimport JSON_MALFORMED, finished, put_json

cdef enum:
    # Kinds of differences, with the event's numbers, and an insertion into an array.
    REPLACE = 0
    INSERT = 1
    REMOVE = 2
    ARRAY_INSERT = 3

cdef struct Diff:
    int kind
    const uint8_t* path
    size_t path_n
    const uint8_t* value
    size_t value_n


cdef int put_ascii(Output* out, const char* text, size_t n) noexcept nogil:
    """Write n characters; -1 without memory."""
    if ensure(out, n) != 0:
        return -1
    out.p = put_bytes(out.p, text, n)
    return 0


cdef bint take_diff(Input* source, Diff* diff) noexcept nogil:
    """Read the next difference; false at the end and, with `short`, if malformed."""
    if source.p == source.end:
        return False
    diff.kind = need(source, 1)[0]
    diff.path_n = take_packed(source)
    diff.path = need(source, diff.path_n)
    diff.value_n, diff.value = 0, NULL
    if diff.path == NULL or diff.kind > REMOVE:
        source.short = True
        return False
    if diff.kind == REMOVE:
        return True
    if diff.kind == INSERT and diff.path_n and diff.path[diff.path_n - 1] == 93:
        diff.kind = ARRAY_INSERT
    diff.value_n = take_packed(source)
    diff.value = need(source, diff.value_n)
    if diff.value == NULL or diff.value_n == 0:
        source.short = True
        return False
    return True


cdef const char* function_of(int kind, size_t* n) noexcept nogil:
    """Return the opening of the function that makes a difference."""
    if kind == REPLACE:
        n[0] = 13
        return b"JSON_REPLACE("
    if kind == ARRAY_INSERT:
        n[0] = 18
        return b"JSON_ARRAY_INSERT("
    n[0] = 12
    return b"JSON_INSERT(" if kind == INSERT else b"JSON_REMOVE("


cdef int put_functions(Output* out, Input source) noexcept nogil:
    """Write the opening functions, the last one first."""
    cdef Input again = source
    cdef Diff diff
    cdef int last = -1
    cdef size_t room = 0
    cdef size_t n
    cdef uint8_t* q
    cdef const char* function
    while take_diff(&source, &diff):
        if diff.kind != last:
            last = diff.kind
            function_of(last, &n)
            room += n
    if source.short:
        return JSON_MALFORMED
    if ensure(out, room) != 0:
        return -1
    out.p += room
    q = out.p
    last = -1
    while take_diff(&again, &diff):
        if diff.kind != last:
            last = diff.kind
            function = function_of(last, &n)
            q -= n
            memcpy(q, function, n)
    return 0


cdef int put_changes(Output* out, Input source) noexcept nogil:
    """Write paths and values, and close each function after its last one."""
    cdef Diff diff
    cdef int last = -1
    cdef int status
    while take_diff(&source, &diff):
        if last >= 0 and diff.kind != last and put_ascii(out, b")", 1) != 0:
            return -1
        last = diff.kind
        if (
            put_ascii(out, b", '", 3) != 0
            or put_utf8(out, diff.path, diff.path_n) != 0
            or put_ascii(out, b"'", 1) != 0
        ):
            return -1
        if diff.kind != REMOVE:
            if put_ascii(out, b", ", 2) != 0:
                return -1
            status = put_json(out, diff.value, diff.value_n)
            if status != 0:
                return status
    return put_ascii(out, b")", 1)


cdef int put_json_diff(Output* out, const uint8_t* p, size_t n, const uint8_t* name,
                       size_t name_n) noexcept nogil:
    """Write the differences of a partial update as an expression on the column.

    Adjacent differences of one kind share a function: JSON_REPLACE(name, '$.a', 1,
    '$.b', 2); later functions enclose earlier ones. Without differences nothing is
    written: the value is that of the row before.
    """
    cdef size_t before = out.p - out.start
    cdef Input source
    cdef int status
    if n == 0:
        return 0
    source.p, source.end, source.short = p, p + n, False
    status = put_functions(out, source)
    if status == 0:
        status = put_ascii(out, <const char*>name, name_n)
    if status == 0:
        status = put_changes(out, source)
    if status != 0:
        out.p = out.start + before
    return status


def json_diff_text(const uint8_t[::1] diff, str column):
    """Return the expression for differences; ValueError when they are malformed."""
    cdef bytes name = column.encode()
    cdef const uint8_t* p = &diff[0] if len(diff) else NULL
    cdef Output out
    out.start = out.p = out.end = NULL
    out.grow = grow_heap
    try:
        return finished(&out, put_json_diff(&out, p, len(diff), name, len(name)))
    finally:
        free(out.start)
