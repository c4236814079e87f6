"""Text of numbers against Python's own arithmetic."""

from __future__ import annotations

import struct
from decimal import Decimal
from fractions import Fraction

import pytest

from canal_server.decoder.text.number_text import (
    decimal_text,
    double_text,
    float_text,
    signed_text,
    unsigned_text,
)

GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def layout(digits: str, exponent: int) -> str:
    """Return 0.digits * 10^exponent as Java lays it out."""
    if 0 < exponent <= 7:
        digits = digits.ljust(exponent, "0")
        return f"{digits[:exponent]}.{digits[exponent:] or '0'}"
    if -3 < exponent <= 0:
        return "0." + "0" * -exponent + digits
    return f"{digits[0]}.{digits[1:] or '0'}E{exponent - 1}"


def java_double(value: float) -> str:
    """Return Java's text by way of Python's shortest digits."""
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    kept = text.rstrip("0") or "0"
    return "-" * sign + layout(kept, len(text) + exponent)


def from_float_bits(bits: int) -> float:
    """Return the 32-bit number with these bits."""
    number: float
    (number,) = struct.unpack("<f", struct.pack("<I", bits))
    return number


def java_float(bits: int) -> str:
    """Return Java's text of a positive float by trying lengths from two on."""
    value = Fraction(from_float_bits(bits))
    # A float as if there were no largest one: infinity's bits mean 2^128.
    above = (
        Fraction(2) ** 128
        if bits == 0x7F7FFFFF
        else Fraction(from_float_bits(bits + 1))
    )
    low = (Fraction(from_float_bits(bits - 1)) + value) / 2
    high = (above + value) / 2
    top = 0
    while value >= Fraction(10) ** top:
        top += 1
    while value < Fraction(10) ** (top - 1):
        top -= 1
    for length in range(2, 12):
        unit = Fraction(10) ** (top - length)
        floor = value // unit
        fits = [
            n
            for n in (floor, floor + 1)
            if low < n * unit < high or (bits % 2 == 0 and n * unit in (low, high))
        ]
        if fits:
            best = min(fits, key=lambda n: (abs(n * unit - value), n % 2))
            text = str(best)
            return layout(text.rstrip("0"), top + len(text) - length)
    raise AssertionError(bits)


def pack(unscaled: int, precision: int, scale: int) -> bytes:
    """Pack unscaled / 10^scale as MySQL stores it."""
    digits = str(abs(unscaled)).rjust(precision, "0")
    whole, fraction = digits[: precision - scale], digits[precision - scale :]
    head = len(whole) % 9
    groups = [whole[:head], *(whole[i : i + 9] for i in range(head, len(whole), 9))]
    groups += [fraction[i : i + 9] for i in range(0, scale, 9)]
    packed = bytearray()
    for group in groups:
        packed += int(group or 0).to_bytes(GROUP_BYTES[len(group)], "big")
    if unscaled < 0:
        packed = bytearray(byte ^ 0xFF for byte in packed)
    packed[0] ^= 0x80
    return bytes(packed)


def canal_decimal(unscaled: int, scale: int) -> str:
    """Return the text, with canal's rule about the fraction's last group."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    tail = scale % 9
    if tail and not int(fraction[-tail:]):
        fraction = fraction[:-tail] or "0"
    return f"{sign}{whole}.{fraction}" if scale else f"{sign}{whole}"


def test_integers_at_every_digit_count(rng):
    """Numbers around each power of ten and of two, and random ones, are right."""
    numbers = {10**e + d for e in range(20) for d in (-1, 0, 1)}
    numbers |= {2**e + d for e in range(64) for d in (-1, 0, 1)}
    numbers |= {rng.getrandbits(rng.randint(1, 64)) for _ in range(20000)}
    for number in numbers:
        if number < 2**64:
            assert unsigned_text(number) == str(number)
        if number <= 2**63:
            assert signed_text(-number) == str(-number)
    assert unsigned_text(2**64 - 1) == str(2**64 - 1)
    assert signed_text(2**63 - 1) == str(2**63 - 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (12345678.9, "1.23456789E7"),
        (1e-3, "0.001"),
        (9.99e-4, "9.99E-4"),
        (2e-3, "0.002"),
        (1e23, "1.0E23"),
        (2.0**53, "9.007199254740992E15"),
        (5e-324, "4.9E-324"),
        (1e-323, "9.9E-324"),
        (1.5e-323, "1.5E-323"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles_by_name(value, text):
    """The borders of the layouts and the odd values have Java's text."""
    assert double_text(value) == text


def test_random_doubles(rng):
    """Any bit pattern and short decimals have the shortest digits, as repr has."""
    for _ in range(50000):
        bits = rng.getrandbits(64)
        value = struct.unpack("<d", struct.pack("<Q", bits))[0]
        if bits >> 52 & 0x7FF not in (0, 0x7FF):
            assert double_text(value) == java_double(value), hex(bits)
        short = rng.randint(-(10**9), 10**9) / 10 ** rng.randint(0, 12)
        if short:
            assert double_text(short) == java_double(short), short


def test_doubles_at_powers_of_two():
    """Powers of two, whose lower neighbour is closer, and their neighbours."""
    for exponent in range(-1021, 1024):
        bits = (exponent + 1023) << 52
        for near in (bits - 1, bits, bits + 1):
            value = struct.unpack("<d", struct.pack("<Q", near))[0]
            assert double_text(value) == java_double(value), hex(near)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (3.4028234e38, "3.4028235E38"),
        (1.17549435e-38, "1.1754944E-38"),
        (1e-44, "9.8E-45"),
        (1.4e-45, "1.4E-45"),
        (16777217.0, "1.6777216E7"),
        (-1e-5, "-1.0E-5"),
        (-0.0, "-0.0"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_floats_by_name(value, text):
    """32-bit numbers have their own, fewer digits."""
    assert float_text(value) == text


def test_random_floats(rng):
    """Random, tiny and huge floats agree with a search over exact fractions."""
    patterns = list(range(1, 200)) + [
        (e << 23) + d for e in range(1, 255) for d in (0, 1)
    ]
    patterns += [0x7F7FFFFF]
    patterns += [rng.randrange(1, 0x7F800000) for _ in range(3000)]
    for bits in patterns:
        assert float_text(from_float_bits(bits)) == java_float(bits), hex(bits)


@pytest.mark.parametrize(
    ("precision", "scale", "value", "text"),
    [
        (10, 2, "5.00", "5.0"),
        (10, 2, "5.10", "5.10"),
        (10, 2, "0.00", "0.0"),
        (10, 2, "-1.50", "-1.50"),
        (10, 0, "100", "100"),
        (20, 10, "1", "1.000000000"),
        (20, 11, "1.12345678900", "1.123456789"),
        (18, 9, "2", "2.000000000"),
        (9, 9, "0.000000001", "0.000000001"),
        (30, 0, "-1000000000000000000", "-1000000000000000000"),
    ],
)
def test_decimals_by_name(precision, scale, value, text):
    """The rule about the fraction's last group, on the cases that show it."""
    unscaled = int(Decimal(value).scaleb(scale))
    packed = pack(unscaled, precision, scale)
    assert decimal_text(packed, precision, scale) == text
    assert canal_decimal(unscaled, scale) == text


def test_random_decimals(rng):
    """All types up to 65 digits agree with Python's decimal."""
    for precision in range(1, 66):
        for scale in range(min(precision, 38) + 1):
            for _ in range(4):
                size = rng.randint(1, precision)
                unscaled = rng.randint(-(10**size) + 1, 10**size - 1)
                packed = pack(unscaled, precision, scale)
                text = canal_decimal(unscaled, scale)
                assert decimal_text(packed, precision, scale) == text


def test_nonsense_decimals_stay_in_bounds(rng):
    """Bytes that no server writes give some number, of up to 81 digits in 9 groups."""
    for _ in range(5000):
        precision = rng.randint(1, 81)
        scale = rng.randint(0, precision)
        whole = precision - scale
        if -(-whole // 9) - (-scale // 9) > 9:
            continue
        size = sum(n // 9 * 4 + GROUP_BYTES[n % 9] for n in (whole, scale))
        text = decimal_text(rng.randbytes(size), precision, scale)
        assert len(text) <= 84
        assert Decimal(text).is_finite()


@pytest.mark.parametrize(("precision", "scale"), [(0, 0), (5, 6), (5, -1)])
def test_refuses_types_that_do_not_exist(precision, scale):
    """A precision or scale out of range has no size."""
    with pytest.raises(ValueError, match="decimal"):
        decimal_text(bytes(4), precision, scale)


@pytest.mark.parametrize(
    ("precision", "scale"), [(65, 0), (72, 0), (81, 0), (81, 81), (73, 10), (66, 30)]
)
def test_calculated_decimals(precision, scale, rng):
    """A decimal in JSON has up to nine groups of digits, more than any column."""
    for digits in (1, precision // 2, precision):
        unscaled = rng.randint(-(10**digits) + 1, 10**digits - 1)
        text = canal_decimal(unscaled, scale)
        assert decimal_text(pack(unscaled, precision, scale), precision, scale) == text


@pytest.mark.parametrize(("precision", "scale"), [(82, 0), (81, 1), (255, 0), (90, 90)])
def test_refuses_decimals_of_more_than_nine_groups(precision, scale):
    """A decimal is refused that the server has no room for, whatever bytes it has."""
    for size in range(60):
        with pytest.raises(ValueError, match="decimal"):
            decimal_text(bytes(size), precision, scale)
