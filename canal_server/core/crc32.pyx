# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""CRC-32 as binlog events have it (the polynomial of zlib and Ethernet).

With carry-less multiplication (x86 with PCLMULQDQ, found at run time) four blocks
of 16 bytes are folded into the next four per step, then into one another, until 16
bytes are left that have the same remainder as the whole. Those, the last few bytes
and everything on other processors go through 16 tables, 16 bytes a step.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define CANAL_CLMUL __attribute__((target("pclmul,sse2")))

    static int canal_has_clmul(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("pclmul") != 0;
    }

    CANAL_CLMUL static inline __m128i canal_step(__m128i x, __m128i by, __m128i next) {
        __m128i low = _mm_clmulepi64_si128(x, by, 0x00);
        __m128i high = _mm_clmulepi64_si128(x, by, 0x11);
        return _mm_xor_si128(_mm_xor_si128(low, high), next);
    }

    CANAL_CLMUL static inline __m128i canal_load(const uint8_t* p) {
        return _mm_loadu_si128((const __m128i*)p);
    }

    /* Folds n >= 16 bytes, a multiple of 16, into the 16 bytes at rest. */
    CANAL_CLMUL static void canal_fold(const uint8_t* p, size_t n, uint32_t crc,
                                       const uint64_t* by_four, const uint64_t* by_one,
                                       uint8_t* rest) {
        const __m128i one = canal_load((const uint8_t*)by_one);
        __m128i a = _mm_xor_si128(canal_load(p), _mm_cvtsi32_si128((int)crc));
        p += 16;
        n -= 16;
        if (n >= 48) {
            const __m128i four = canal_load((const uint8_t*)by_four);
            __m128i b = canal_load(p);
            __m128i c = canal_load(p + 16);
            __m128i d = canal_load(p + 32);
            p += 48;
            n -= 48;
            for (; n >= 64; p += 64, n -= 64) {
                a = canal_step(a, four, canal_load(p));
                b = canal_step(b, four, canal_load(p + 16));
                c = canal_step(c, four, canal_load(p + 32));
                d = canal_step(d, four, canal_load(p + 48));
            }
            b = canal_step(a, one, b);
            c = canal_step(b, one, c);
            a = canal_step(c, one, d);
        }
        for (; n >= 16; p += 16, n -= 16)
            a = canal_step(a, one, canal_load(p));
        _mm_storeu_si128((__m128i*)rest, a);
    }
    #else
    static int canal_has_clmul(void) { return 0; }
    static void canal_fold(const uint8_t* p, size_t n, uint32_t crc,
                           const uint64_t* by_four, const uint64_t* by_one,
                           uint8_t* rest) {
        (void)p; (void)n; (void)crc; (void)by_four; (void)by_one; (void)rest;
    }
    #endif
    """
    bint has_clmul "canal_has_clmul"() nogil
    void fold "canal_fold"(const uint8_t* p, size_t n, uint32_t crc,
                           const uint64_t* by_four, const uint64_t* by_one,
                           uint8_t* rest) noexcept nogil

cdef uint32_t[16][256] tables  # tables[i]: a byte followed by i more bytes
cdef uint64_t[2] by_four
cdef uint64_t[2] by_one
cdef bint folds = has_clmul()


def _power(n):
    """Return x^n modulo the polynomial, bits reversed, as folding needs it."""
    value = 1
    for _ in range(n):
        value <<= 1
        if value >> 32:
            value ^= 0x104C11DB7
    return int(f"{value:032b}"[::-1], 2) << 1


def _fill_tables():
    cdef int i, bit
    cdef uint32_t value
    for i in range(256):
        value = i
        for bit in range(8):
            value = value >> 1 ^ (<uint32_t>0xEDB88320U if value & 1 else 0)
        tables[0][i] = value
    for bit in range(1, 16):
        for i in range(256):
            value = tables[bit - 1][i]
            tables[bit][i] = value >> 8 ^ tables[0][value & 0xFF]
    # Each half of a block moves over 64 or 16 bytes; the halves lie 8 bytes apart.
    by_four[0], by_four[1] = _power(4 * 128 + 32), _power(4 * 128 - 32)
    by_one[0], by_one[1] = _power(128 + 32), _power(128 - 32)


_fill_tables()


cdef uint32_t by_tables(const uint8_t* p, size_t n, uint32_t crc) noexcept nogil:
    """Continue an inverted checksum."""
    cdef uint32_t next
    cdef int i
    while n >= 16:
        next = (
            tables[15][p[0] ^ (crc & 0xFF)]
            ^ tables[14][p[1] ^ (crc >> 8 & 0xFF)]
            ^ tables[13][p[2] ^ (crc >> 16 & 0xFF)]
            ^ tables[12][p[3] ^ (crc >> 24)]
        )
        for i in range(4, 16):
            next ^= tables[15 - i][p[i]]
        crc = next
        p += 16
        n -= 16
    while n:
        crc = crc >> 8 ^ tables[0][(crc ^ p[0]) & 0xFF]
        p += 1
        n -= 1
    return crc


cdef uint32_t crc32(const uint8_t* p, size_t n, uint32_t start) noexcept nogil:
    """Return the checksum of n bytes; `start` is that of the bytes before, or 0."""
    cdef uint8_t[16] rest
    cdef uint32_t crc = ~start
    cdef size_t blocks
    if folds and n >= 32:
        blocks = n & ~<size_t>15
        fold(p, blocks, crc, by_four, by_one, rest)
        crc = by_tables(rest, 16, 0)
        p += blocks
        n -= blocks
    return ~by_tables(p, n, crc)


def checksum(const uint8_t[::1] data, uint32_t start=0):
    """Return the CRC-32 of data; `start` is that of the bytes before."""
    return crc32(&data[0], len(data), start) if len(data) else start


def checksum_by_table(const uint8_t[::1] data, uint32_t start=0):
    """Return the same without the processor's instruction, as where it is missing."""
    return ~by_tables(&data[0], len(data), ~start) if len(data) else start
