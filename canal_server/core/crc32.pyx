# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""CRC-32 as binlog events have it (the polynomial of zlib and Ethernet).

With carry-less multiplication (x86 with PCLMULQDQ, found at run time) four blocks
of 16 bytes are folded into the next four per step, then into one another. A last part
of fewer bytes is folded with the end of what is before it, so that 16 bytes are left
that have the same remainder as the whole; they are reduced by Barrett's method. Fewer
than 16 bytes, and everything on other processors, go through 16 tables, 16 bytes a step.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define CANAL_CLMUL __attribute__((target("pclmul,sse4.1")))

    static int canal_has_clmul(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    }

    CANAL_CLMUL static inline __m128i canal_step(__m128i x, __m128i by, __m128i next) {
        __m128i low = _mm_clmulepi64_si128(x, by, 0x00);
        __m128i high = _mm_clmulepi64_si128(x, by, 0x11);
        return _mm_xor_si128(_mm_xor_si128(low, high), next);
    }

    CANAL_CLMUL static inline __m128i canal_load(const void* p) {
        return _mm_loadu_si128((const __m128i*)p);
    }

    /* Indices for a shuffle: from 16 on, n bytes earlier or later; others give 0. */
    static const uint8_t canal_moves[48] = {
        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
    };

    /* Continues an inverted checksum with n >= 16 bytes. `powers`: those of x that move
       by four blocks, by one, by half of one, and what the reduction needs. */
    CANAL_CLMUL static uint32_t canal_fold(const uint8_t* p, size_t n, uint32_t crc,
                                           const uint64_t* powers) {
        const __m128i one = canal_load(powers + 2);
        const __m128i words = _mm_set_epi32(0, -1, 0, -1);
        __m128i a = _mm_xor_si128(canal_load(p), _mm_cvtsi32_si128((int)crc));
        __m128i b, c, d;
        p += 16;
        n -= 16;
        if (n >= 48) {
            const __m128i four = canal_load(powers);
            b = canal_load(p);
            c = canal_load(p + 16);
            d = canal_load(p + 32);
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
        if (n) {
            /* The first n bytes are a block before the other ones and the last n. */
            b = _mm_shuffle_epi8(a, canal_load(canal_moves + n));
            c = _mm_shuffle_epi8(a, canal_load(canal_moves + 16 + n));
            d = canal_load(canal_moves + n);
            d = _mm_blendv_epi8(canal_load(p + n - 16), c, d);
            a = canal_step(b, one, d);
        }
        /* 128 to 96 bits, to 64, to 32. */
        b = _mm_clmulepi64_si128(a, one, 0x10);
        a = _mm_xor_si128(_mm_srli_si128(a, 8), b);
        b = canal_load(powers + 4);
        c = _mm_srli_si128(a, 4);
        a = _mm_clmulepi64_si128(_mm_and_si128(a, words), b, 0x00);
        a = _mm_xor_si128(a, c);
        d = canal_load(powers + 6);
        c = _mm_clmulepi64_si128(_mm_and_si128(a, words), d, 0x10);
        c = _mm_clmulepi64_si128(_mm_and_si128(c, words), d, 0x00);
        return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, c), 1);
    }
    #else
    static int canal_has_clmul(void) { return 0; }
    static uint32_t canal_fold(const uint8_t* p, size_t n, uint32_t crc,
                               const uint64_t* powers) {
        (void)p; (void)n; (void)crc; (void)powers;
        return 0;
    }
    #endif
    """
    bint has_clmul "canal_has_clmul"() nogil
    uint32_t fold "canal_fold"(const uint8_t* p, size_t n, uint32_t crc,
                               const uint64_t* powers) noexcept nogil

cdef uint32_t[16][256] tables  # tables[i]: a byte followed by i more bytes
cdef uint64_t[8] powers
cdef bint folds = has_clmul()

POLYNOMIAL = 0x104C11DB7


def _power(n):
    """Return x^n modulo the polynomial, bits reversed, as folding needs it."""
    value = 1
    for _ in range(n):
        value <<= 1
        if value >> 32:
            value ^= POLYNOMIAL
    return int(f"{value:032b}"[::-1], 2) << 1


def _quotient():
    """Return x^64 divided by the polynomial, bits reversed."""
    rest, found = 1 << 64, 0
    for bit in range(32, -1, -1):
        if rest >> (bit + 32) & 1:
            rest ^= POLYNOMIAL << bit
            found |= 1 << bit
    return int(f"{found:033b}"[::-1], 2)


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
    powers[0], powers[1] = _power(4 * 128 + 32), _power(4 * 128 - 32)
    powers[2], powers[3] = _power(128 + 32), _power(128 - 32)
    powers[4] = _power(64)
    powers[6], powers[7] = int(f"{POLYNOMIAL:033b}"[::-1], 2), _quotient()


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
    cdef uint32_t crc = ~start
    if folds and n >= 16:
        return ~fold(p, n, crc, powers)
    return ~by_tables(p, n, crc)


def checksum(const uint8_t[::1] data, uint32_t start=0):
    """Return the CRC-32 of data; `start` is that of the bytes before."""
    return crc32(&data[0], len(data), start) if len(data) else start


def checksum_by_table(const uint8_t[::1] data, uint32_t start=0):
    """Return the same without the processor's instruction, as where it is missing."""
    return ~by_tables(&data[0], len(data), ~start) if len(data) else start
