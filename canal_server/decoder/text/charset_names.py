"""MySQL's character sets by collation id.

Leaves out what their bytes mean (`charset_tables`, `charset_text`).
"""

from __future__ import annotations

ALIASES = {"utf8": "utf8mb3"}  # as MySQL named it before 8.0

# Collation ids from a line's number on, up to the next number, are of this set. Those
# of MariaDB's contractions of utf8mb4_general_ci and the like are in between.
COLLATION_RANGES = """
1 big5 2 latin2 3 dec8 4 cp850 5 latin1 6 hp8 7 koi8r 8 latin1 9 latin2 10 swe7
11 ascii 12 ujis 13 sjis 14 cp1251 15 latin1 16 hebrew 17 filename 18 tis620 19 euckr
20 latin7 21 latin2 22 koi8u 23 cp1251 24 gb2312 25 greek 26 cp1250 27 latin2 28 gbk
29 cp1257 30 latin5 31 latin1 32 armscii8 33 utf8mb3 34 cp1250 35 ucs2 36 cp866
37 keybcs2 38 macce 39 macroman 40 cp852 41 latin7 43 macce 44 cp1250 45 utf8mb4
47 latin1 50 cp1251 53 macroman 54 utf16 56 utf16le 57 cp1256 58 cp1257 60 utf32
62 utf16le 63 binary 64 armscii8 65 ascii 66 cp1250 67 cp1256 68 cp866 69 dec8
70 greek 71 hebrew 72 hp8 73 keybcs2 74 koi8r 75 koi8u 76 utf8mb3 77 latin2 78 latin5
79 latin7 80 cp850 81 cp852 82 swe7 83 utf8mb3 84 big5 85 euckr 86 gb2312 87 gbk
88 sjis 89 tis620 90 ucs2 91 ujis 92 geostd8 94 latin1 95 cp932 97 eucjpms 99 cp1250
101 utf16 128 ucs2 160 utf32 192 utf8mb3 224 utf8mb4 248 gb18030 251 utf8mb4
576 utf8mb3 608 utf8mb4 640 ucs2 672 utf16 704 utf16le 736 utf32 768 -
""".split()  # noqa: SIM905  # a list of strings would take a page
# MariaDB: NO PAD collations have the number of the padded one plus this.
NO_PAD = 1024
# MariaDB: UCA 14.0.0 collations, 256 numbers per character set.
UCA1400_FIRST = 2048
UCA1400_SETS = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")


def _collations() -> dict[int, str]:
    starts = [int(number) for number in COLLATION_RANGES[::2]]
    names = COLLATION_RANGES[1::2]
    return {
        number: name
        for name, first, stop in zip(names[:-1], starts[:-1], starts[1:], strict=True)
        for number in range(first, stop)
    }


_COLLATIONS = _collations()


def charset_of_collation(collation_id: int) -> str | None:
    """Return the character set's name; None for an unknown id."""
    if collation_id >= UCA1400_FIRST:
        block = (collation_id - UCA1400_FIRST) >> 8
        return UCA1400_SETS[block] if block < len(UCA1400_SETS) else None
    if collation_id >= NO_PAD:
        collation_id -= NO_PAD
    return _COLLATIONS.get(collation_id)
