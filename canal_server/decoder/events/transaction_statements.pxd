# cython: language_level=3
"""Kinds of statements that the engine knows; see transaction_statements.pyx."""

from libc.stdint cimport uint8_t

cdef enum Statement:
    ST_OTHER = 0
    ST_BEGIN = 1
    ST_COMMIT = 2
    ST_XA_START = 3
    ST_XA_END = 4
    ST_XA_COMMIT = 5
    ST_XA_ROLLBACK = 6
    ST_NOTHING = 7      # SAVEPOINT, ROLLBACK TO, RELEASE: nothing is delivered
    ST_ROLLBACK = 8     # nothing is delivered, but it ends a transaction

cdef int statement_kind(const uint8_t* sql, size_t n) noexcept nogil

# Whether a statement begins a transaction, whose rows follow, as MySQL writes
# CREATE TABLE … SELECT.
cdef bint begins_rows(const uint8_t* sql, size_t n) noexcept nogil
