# cython: language_level=3
"""Distinguishes transaction control from all other statements.

A statement is BEGIN only if it consists of nothing else: `ALTER TABLE t DROP COLUMN
is_begin` also ends in BEGIN. Comments, blanks and semicolons around it do not count.
"""

from libc.stdint cimport uint8_t


cdef inline uint8_t lower(uint8_t c) noexcept nogil:
    return c | 0x20 if 65 <= c <= 90 else c


cdef inline bint is_blank(uint8_t c) noexcept nogil:
    return c == 32 or 9 <= c <= 13 or c == 59


cdef size_t skip_blank(const uint8_t* sql, size_t n, size_t at) noexcept nogil:
    """Skip blanks, semicolons and plain comments."""
    while at < n:
        if is_blank(sql[at]):
            at += 1
        elif (sql[at] == 47 and at + 2 < n and sql[at + 1] == 42
                and sql[at + 2] != 33 and not (
                    sql[at + 2] == 77 and at + 3 < n and sql[at + 3] == 33)):
            # A comment, but none that is executed: /*! or /*M!
            at += 2
            while at + 1 < n and not (sql[at] == 42 and sql[at + 1] == 47):
                at += 1
            at += 2
        else:
            return at
    return n


cdef size_t skip_word(const uint8_t* sql, size_t n, size_t at,
                      const char* word) noexcept nogil:
    """Skip a word in any case; returns `at` if it is missing."""
    cdef size_t i = at
    while word[0]:
        if i >= n or lower(sql[i]) != <uint8_t>word[0]:
            return at
        i += 1
        word += 1
    if i < n:
        c = lower(sql[i])
        if 97 <= c <= 122 or 48 <= c <= 57 or c == 95 or c == 36 or c > 127:
            return at
    return i


cdef int statement_kind(const uint8_t* sql, size_t n) noexcept nogil:
    """Return the Statement of a text."""
    cdef size_t first = skip_blank(sql, n, 0)
    cdef size_t at
    if first >= n:
        return ST_NOTHING if n else ST_OTHER
    at = skip_word(sql, n, first, "begin")
    if at != first:
        return ST_BEGIN if skip_blank(sql, n, at) >= n else ST_OTHER
    at = skip_word(sql, n, first, "commit")
    if at != first:
        return ST_COMMIT if skip_blank(sql, n, at) >= n else ST_OTHER
    at = skip_word(sql, n, first, "rollback")
    if at != first:
        return ST_ROLLBACK if skip_blank(sql, n, at) >= n else ST_NOTHING
    if (skip_word(sql, n, first, "savepoint") != first
            or skip_word(sql, n, first, "release") != first):
        return ST_NOTHING
    at = skip_word(sql, n, first, "xa")
    if at == first:
        return ST_OTHER
    first = skip_blank(sql, n, at)
    if (skip_word(sql, n, first, "start") != first
            or skip_word(sql, n, first, "begin") != first):
        return ST_XA_START
    if skip_word(sql, n, first, "end") != first:
        return ST_XA_END
    if skip_word(sql, n, first, "commit") != first:
        return ST_XA_COMMIT
    if skip_word(sql, n, first, "rollback") != first:
        return ST_XA_ROLLBACK
    return ST_OTHER


cdef bint begins_rows(const uint8_t* sql, size_t n) noexcept nogil:
    cdef const char* words = "start transaction"
    cdef size_t count = 17
    cdef size_t i
    while n and is_blank(sql[n - 1]):
        n -= 1
    if n < count:
        return False
    for i in range(count):
        if lower(sql[n - count + i]) != <uint8_t>words[i]:
            return False
    return True


def kind_of_statement(bytes sql):
    """Return the number of the Statement; for tests."""
    return statement_kind(sql, len(sql))
