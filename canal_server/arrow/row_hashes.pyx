# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Hashes of rows over columns of Arrow: equal bits and equal NULLs give equal hashes.

A row's hash is a chain over its columns, in order: each value of up to eight bytes is
one word, wider ones are several, and a variable-length value ends with its length. A
NULL is a separate step, so it is unlike any value. In a single column of numbers, no
two values have the same hash. Hashes are for comparisons within one run of a program:
they may change between releases, and do not resist a search for collisions.
"""

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef uint64_t FACTOR = 0x9E3779B97F4A7C15U
cdef uint64_t NULL_FACTOR = 0xD6E8FEB86659FD93U

WIDTHS = (1, 2, 4, 8, 16)


cdef inline uint64_t mixed(uint64_t h) noexcept nogil:
    """Spread each bit over all: the finalizer of MurmurHash3, a bijection."""
    h ^= h >> 33
    h *= 0xFF51AFD7ED558CCDU
    h ^= h >> 33
    h *= 0xC4CEB9FE1A85EC53U
    return h ^ (h >> 33)


cdef inline uint64_t step(uint64_t h, uint64_t word) noexcept nogil:
    return mixed((h ^ word) * FACTOR + (h >> 47))


cdef inline uint64_t null_step(uint64_t h) noexcept nogil:
    return mixed(h * NULL_FACTOR + 1)


cdef inline uint64_t word_at(const uint8_t* p, size_t n) noexcept nogil:
    """Return up to eight bytes as a number."""
    cdef uint64_t word = 0
    memcpy(&word, p, n)
    return word


cdef inline uint64_t bytes_step(uint64_t h, const uint8_t* p, size_t n) noexcept nogil:
    cdef size_t left = n
    while left >= 8:
        h = step(h, word_at(p, 8))
        p += 8
        left -= 8
    if left:
        h = step(h, word_at(p, left))
    return step(h, n ^ FACTOR)


cdef inline bint is_there(const uint8_t* validity, size_t i) noexcept nogil:
    return validity == NULL or validity[i >> 3] >> (i & 7) & 1


def add_fixed(
    uint64_t[::1] hashes,
    const uint8_t[::1] validity,
    const uint8_t[::1] values,
    int width,
    size_t offset,
):
    """Add a column of values of 1, 2, 4, 8 or 16 bytes to the hashes of its rows.

    `validity` may be None; `offset` is the array's. ValueError if buffers are short.
    """
    cdef size_t i, at, rows = hashes.shape[0]
    cdef const uint8_t* valid = bits_of(validity, offset + rows)
    cdef const uint8_t* p
    cdef uint64_t h
    if width not in WIDTHS:
        raise ValueError(f"values of {width} bytes are not supported")
    if not rows:
        return
    if values is None or <size_t>values.shape[0] < (offset + rows) * width:
        raise ValueError(f"a column of {rows} rows has too short a buffer of values")
    p = &values[0]
    with nogil:
        for i in range(rows):
            at = offset + i
            h = hashes[i]
            if not is_there(valid, at):
                h = null_step(h)
            elif width == 16:
                h = step(h, word_at(p + 16 * at, 8))
                h = step(h, word_at(p + 16 * at + 8, 8))
            else:
                h = step(h, word_at(p + width * at, width))
            hashes[i] = h


def add_bytes(
    uint64_t[::1] hashes,
    const uint8_t[::1] validity,
    const uint8_t[::1] offsets,
    const uint8_t[::1] values,
    size_t offset,
):
    """Add a column of texts or bytes, with 32-bit offsets, to the hashes.

    `validity` and `values` may be None. ValueError if buffers are short.
    """
    cdef size_t i, rows = hashes.shape[0]
    cdef const uint8_t* valid = bits_of(validity, offset + rows)
    cdef const uint8_t* p = NULL
    cdef const int32_t* ends
    cdef size_t size = 0
    cdef int32_t begin, end
    cdef uint64_t h
    cdef bint short = False
    if not rows:
        return
    if offsets is None or <size_t>offsets.shape[0] < (offset + rows + 1) * 4:
        raise ValueError(f"a column of {rows} rows has too short a buffer of offsets")
    ends = <const int32_t*>&offsets[0] + offset
    if values is not None and values.shape[0]:
        p = &values[0]
        size = values.shape[0]
    with nogil:
        for i in range(rows):
            h = hashes[i]
            if is_there(valid, offset + i):
                begin, end = ends[i], ends[i + 1]
                if begin < 0 or end < begin or <size_t>end > size:
                    short = True
                    break
                h = bytes_step(h, p + begin, end - begin)
            else:
                h = null_step(h)
            hashes[i] = h
    if short:
        raise ValueError(f"a column's value {i} is outside its buffer")


cdef const uint8_t* bits_of(const uint8_t[::1] validity, size_t rows) except? NULL:
    """Return a bitmap, NULL if there is none."""
    if validity is None or not validity.shape[0]:
        return NULL
    if <size_t>validity.shape[0] * 8 < rows:
        raise ValueError(f"a column of {rows} rows has too short a bitmap")
    return &validity[0]
