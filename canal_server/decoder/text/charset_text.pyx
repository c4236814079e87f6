# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Text of MySQL's character sets as UTF-8.

The output is valid UTF-8 for any bytes. An invalid sequence becomes U+FFFD: in UTF-8
one for each part that Java's decoder consumes at a time, in other sets one per intended
character.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from canal_server.core.wire cimport Output, ensure

from canal_server.decoder.text.charset_names import ALIASES
from canal_server.decoder.text.charset_tables import LEAD, tables_of
from canal_server.errors import TableMetaError

cdef enum:
    FOURS_COUNT = 39420      # GB 18030: linear numbers of the BMP
    FOURS_PLANES = 189000    # and of U+10000
    STEP_ROOM = 16           # most bytes that one step of a conversion writes
    PIECE_ROOM = 65536

NATIVE = {
    "binary": CHARSET_BINARY,
    "utf8mb3": CHARSET_UTF8,
    "utf8mb4": CHARSET_UTF8,
    "filename": CHARSET_UTF8,
    "utf16": CHARSET_UTF16,
    "utf16le": CHARSET_UTF16LE,
    "ucs2": CHARSET_UCS2,
    "utf32": CHARSET_UTF32,
}
_charsets = {}


cdef class Charset:
    """One of MySQL's character sets, by its name (`utf8` is `utf8mb3`).

    Raises TableMetaError for an unknown name.
    """

    def __init__(self, str name):
        cdef const uint16_t[::1] pairs, triples, fours
        cdef int byte
        self.name = ALIASES.get(name.lower(), name.lower())
        if self.name in NATIVE:
            self.c.kind = NATIVE[self.name]
            self.c.ascii = self.c.kind in (CHARSET_BINARY, CHARSET_UTF8)
            return
        try:
            found = tables_of(self.name)
        except KeyError:
            raise TableMetaError(f"unknown character set {name!r}") from None
        self.c.kind = CHARSET_BYTES
        self.c.ascii = True
        for byte, char in enumerate(found.singles):
            if char != LEAD:
                self.c.singles[byte] = packed_char(char)
            if byte < 0x80 and char != byte:
                self.c.ascii = False
        if found.pairs:
            pairs, self.c.kind = found.pairs, CHARSET_MULTIBYTE
            self.c.pairs = &pairs[0]
        if found.triples:
            triples = found.triples
            self.c.triples = &triples[0]
        if found.fours:
            fours = found.fours
            self.c.fours = &fours[0]
        self.tables = found

    @property
    def is_binary(self):
        """Whether this is `binary`, which is not text."""
        return self.c.kind == CHARSET_BINARY

    def __repr__(self):
        return f"<Charset {self.name}>"


def charset(str name):
    """Return the character set of a name, the same object every time."""
    found = _charsets.get(name)
    if found is None:
        found = _charsets[name] = Charset(name)
    return found


cdef uint32_t packed_char(uint32_t char):
    """Return the UTF-8 of a character below 2^16 in the form of `CharsetC.singles`."""
    cdef uint8_t[4] text
    cdef int n = <int>(put_char(text, char) - text)
    cdef uint32_t packed = <uint32_t>n << 24
    for i in range(n):
        packed |= <uint32_t>text[i] << (8 * i)
    return packed


cdef bint is_continuation(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef int utf8_sequence(const uint8_t* p, size_t n) noexcept nogil:
    """Return the length of the valid sequence at p, or minus the bytes to skip."""
    cdef uint8_t lead = p[0]
    if lead < 0x80:
        return 1
    if lead < 0xC2 or lead > 0xF4 or n < 2 or not is_continuation(p[1]):
        return -1
    if lead < 0xE0:
        return 2
    if (
        (lead == 0xE0 and p[1] < 0xA0)
        or (lead == 0xF0 and p[1] < 0x90)
        or (lead == 0xF4 and p[1] > 0x8F)
    ):
        return -1
    if n < 3 or not is_continuation(p[2]):
        return -2
    if lead < 0xF0:
        return -3 if lead == 0xED and p[1] > 0x9F else 3  # a surrogate, or a character
    if n < 4 or not is_continuation(p[3]):
        return -3
    return 4


cdef size_t valid_utf8(const uint8_t* p, size_t n) noexcept nogil:
    """Return how many bytes from the start are valid UTF-8."""
    cdef uint64_t word
    cdef size_t i = 0
    cdef int step
    while i < n:
        if p[i] < 0x80:
            if i + 8 <= n:
                memcpy(&word, p + i, 8)
                if word & 0x8080808080808080ULL == 0:
                    i += 8
                    continue
            i += 1
            continue
        step = utf8_sequence(p + i, n - i)
        if step < 0:
            return i
        i += step
    return n


cdef int put_utf8(Output* out, const uint8_t* p, size_t n) noexcept nogil:
    """Write UTF-8, repaired where it is malformed; -1 without memory."""
    cdef size_t valid = n if is_ascii(p, n) else valid_utf8(p, n)
    while True:
        if ensure(out, valid + 3) != 0:
            return -1
        if valid:
            memcpy(out.p, p, valid)
            out.p += valid
            p += valid
            n -= valid
        if n == 0:
            return 0
        out.p = put_char(out.p, 0xFFFD)
        valid = -utf8_sequence(p, n)
        p += valid
        n -= valid
        valid = valid_utf8(p, n)


cdef inline int make_room(Output* out, size_t n) noexcept nogil:
    """Ensure room for one more step; near the end, for all n input bytes."""
    if <size_t>(out.end - out.p) >= STEP_ROOM:
        return 0
    return ensure(out, STEP_ROOM + (3 * n if n < PIECE_ROOM / 3 else PIECE_ROOM))


cdef int put_binary(Output* out, const uint8_t* p, size_t n) noexcept nogil:
    """Write each byte as the code point of the same number."""
    cdef uint64_t word
    while n:
        if make_room(out, n) != 0:
            return -1
        if n >= 8:
            memcpy(&word, p, 8)
            if word & 0x8080808080808080ULL == 0:
                memcpy(out.p, &word, 8)
                out.p += 8
                p += 8
                n -= 8
                continue
        out.p = put_char(out.p, p[0])
        p += 1
        n -= 1
    return 0


cdef inline void put_single(Output* out, uint32_t single) noexcept nogil:
    out.p[0] = <uint8_t>single
    out.p[1] = <uint8_t>(single >> 8)
    out.p[2] = <uint8_t>(single >> 16)
    out.p += single >> 24


cdef int put_by_table(Output* out, const uint8_t* p, size_t n,
                      const CharsetC* cs) noexcept nogil:
    """Write text of one or several bytes per character."""
    cdef uint64_t word
    cdef uint32_t single, char
    cdef int used
    while n:
        if make_room(out, n) != 0:
            return -1
        if cs.ascii and n >= 8:
            memcpy(&word, p, 8)
            if word & 0x8080808080808080ULL == 0:
                memcpy(out.p, &word, 8)
                out.p += 8
                p += 8
                n -= 8
                continue
        single = cs.singles[p[0]]
        if single:
            put_single(out, single)
            used = 1
        else:
            used = multibyte(p, n, cs, &char)
            out.p = put_char(out.p, char)
        p += used
        n -= used
    return 0


cdef int multibyte(const uint8_t* p, size_t n, const CharsetC* cs,
                   uint32_t* char) noexcept nogil:
    """Read the multi-byte character at p; returns its length.

    `char` is U+FFFD if it is invalid. A byte that is ASCII is never consumed with an
    invalid character before it.
    """
    cdef const uint16_t* plane = cs.pairs
    cdef int prefix = 0
    char[0] = 0xFFFD
    if n < 2:
        return 1
    if cs.fours != NULL and 0x30 <= p[1] <= 0x39:
        return four_bytes(p, n, cs, char)
    if p[0] == 0x8F and cs.triples != NULL:
        if n < 3 or p[1] < 0x80:
            return 1 if p[1] < 0x80 else 2
        prefix = 1
        plane = cs.triples
    cdef uint16_t found = plane[<int>p[prefix] << 8 | p[prefix + 1]]
    if found:
        char[0] = found
        return prefix + 2
    return prefix + (1 if p[prefix + 1] < 0x80 else 2)


cdef int four_bytes(const uint8_t* p, size_t n, const CharsetC* cs,
                    uint32_t* char) noexcept nogil:
    """Read a four-byte character of GB 18030, the second byte a digit."""
    cdef uint32_t number
    if n < 4 or not (0x81 <= p[2] <= 0xFE and 0x30 <= p[3] <= 0x39):
        return 1
    number = ((p[0] - 0x81) * 10 + p[1] - 0x30) * 1260 + (p[2] - 0x81) * 10 + p[3] - 0x30
    if number < FOURS_COUNT:
        char[0] = cs.fours[number]
    elif number >= FOURS_PLANES:
        char[0] = 0x10000 + number - FOURS_PLANES
    return 4


cdef inline uint32_t unit(const uint8_t* p, bint little) noexcept nogil:
    """Read a code unit of UTF-16."""
    return p[0] | <uint32_t>p[1] << 8 if little else p[1] | <uint32_t>p[0] << 8


cdef int put_utf16(Output* out, const uint8_t* p, size_t n, int kind) noexcept nogil:
    """Write UTF-16 or, without surrogate pairs, UCS-2."""
    cdef bint little = kind == CHARSET_UTF16LE
    cdef uint32_t char, low
    while n >= 2:
        if make_room(out, n) != 0:
            return -1
        char = unit(p, little)
        p += 2
        n -= 2
        if char & 0xFC00 == 0xD800 and n >= 2 and kind != CHARSET_UCS2:
            low = unit(p, little)
            if low & 0xFC00 == 0xDC00:
                char = 0x10000 + ((char & 0x3FF) << 10) + (low & 0x3FF)
                p += 2
                n -= 2
        out.p = put_char(out.p, char)
    return put_rest(out, n)


cdef int put_utf32(Output* out, const uint8_t* p, size_t n) noexcept nogil:
    """Write UTF-32."""
    while n >= 4:
        if make_room(out, n) != 0:
            return -1
        out.p = put_char(
            out.p, <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]
        )
        p += 4
        n -= 4
    return put_rest(out, n)


cdef int put_rest(Output* out, size_t n) noexcept nogil:
    """Write U+FFFD for n bytes of an incomplete character."""
    if n == 0:
        return 0
    if make_room(out, n) != 0:
        return -1
    out.p = put_char(out.p, 0xFFFD)
    return 0


cdef int put_text(Output* out, const uint8_t* p, size_t n,
                  const CharsetC* cs) noexcept nogil:
    """Append n bytes of text as UTF-8 at out.p; -1 without memory."""
    if cs.kind == CHARSET_UTF8:
        return put_utf8(out, p, n)
    if cs.kind == CHARSET_BINARY:
        return put_binary(out, p, n)
    if cs.kind == CHARSET_UTF32:
        return put_utf32(out, p, n)
    if cs.kind == CHARSET_BYTES or cs.kind == CHARSET_MULTIBYTE:
        return put_by_table(out, p, n, cs)
    return put_utf16(out, p, n, cs.kind)


cdef int grow_heap(Output* out, size_t room) noexcept nogil:
    """Provide heap memory, for single values."""
    cdef size_t used = out.p - out.start
    cdef size_t capacity = 2 * (out.end - out.start) + room
    cdef uint8_t* memory = <uint8_t*>realloc(out.start, capacity)
    if memory == NULL:
        return -1
    out.start, out.p, out.end = memory, memory + used, memory + capacity
    return 0


def decode_text(const uint8_t[::1] data, str name):
    """Return the text of bytes in a character set, for tests and single values."""
    cdef Charset found = charset(name)
    cdef Output out
    out.start = out.p = out.end = NULL
    out.grow = grow_heap
    if len(data) == 0:
        return ""
    try:
        if put_text(&out, &data[0], len(data), &found.c) != 0:
            raise MemoryError(f"no memory for {len(data)} bytes of {name}")
        return out.start[:out.p - out.start].decode("utf-8")
    finally:
        free(out.start)
