"""GTID sets of MySQL against a model of plain Python sets, and real servers."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING

import pytest

from canal_server.core.gtid.mysql_sets import GtidSet

if TYPE_CHECKING:
    from collections.abc import Iterable

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "a41c8b8e-e585-11f1-889f-02fc00000001"
SIDS = [bytes.fromhex(sid.replace("-", "")) for sid in (A, B)]
TAGS = ["", "a", "b_1"]

Model = set[tuple[bytes, str, int]]

# The body of a PREVIOUS_GTIDS event that a MySQL 9.7 wrote.
TAGGED_BODY = bytes.fromhex(
    "0106000000000001"
    "3e11fa4771ca11e19e33c80aa942956200010000000000000007000000000000000800000000000000"
    "3e11fa4771ca11e19e33c80aa9429562087a7a5f39010000000000000005000000000000000700000000000000"
    "a41c8b8ee58511f1889f02fc0000000100010000000000000001000000000000000f00000000000000"
    "a41c8b8ee58511f1889f02fc000000010261010000000000000001000000000000000200000000000000"
    "a41c8b8ee58511f1889f02fc0000000140"
    "6262626262626262626262626262626262626262626262626262626262626262"
    "010000000000000001000000000000000200000000000000"
    "a41c8b8ee58511f1889f02fc000000010a6d79746167010000000000000001000000000000000200000000000000"
)
TAGGED_TEXT = f"{A}:7:zz_9:5-6,{B}:1-14:a:1:{'b' * 32}:1:mytag:1"


def model_text(model: Model) -> str:
    """Return the canonical text of a model."""
    items: dict[bytes, str] = {}
    for sid, tag in sorted({entry[:2] for entry in model}):
        numbers = sorted(number for *key, number in model if key == [sid, tag])
        text = f":{tag}" if tag else ""
        for number in numbers:
            if number - 1 not in numbers:
                last = number
                while last + 1 in numbers:
                    last += 1
                text += f":{number}-{last}" if last > number else f":{number}"
        items[sid] = items.get(sid, "") + text
    uuids = {SIDS[0]: A, SIDS[1]: B}
    return ",".join(uuids[sid] + text for sid, text in items.items())


def random_model(rng) -> Model:
    """Return numbers in clusters, as many gaps as runs."""
    return {
        (rng.choice(SIDS), rng.choice(TAGS), start + i)
        for start in (rng.randint(1, 60) for _ in range(rng.randint(0, 8)))
        for i in range(rng.randint(1, 6))
    }


def gtid_set(model: Model, rng) -> GtidSet:
    """Return the set with the numbers added in any order."""
    found = GtidSet()
    for sid, tag, number in rng.sample(sorted(model), len(model)):
        found.add(sid, number, tag)
    return found


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (" \n , ,", ""),
        (f"{A}:5", f"{A}:5"),
        (f"{A.upper()}:1-3", f"{A}:1-3"),
        (A.replace("-", "") + ":1", f"{A}:1"),
        (f" {A} : 1 - 3 : 5 ,\n{B}:1", f"{A}:1-3:5,{B}:1"),
        (f"{B}:1,{A}:1", f"{A}:1,{B}:1"),
        (f"{A}:1-5:4-7:9", f"{A}:1-7:9"),
        (f"{A}:1-3,{A}:4-6", f"{A}:1-6"),
        (f"{A}:7:1", f"{A}:1:7"),
        (f"{A}:tag:1-3", f"{A}:tag:1-3"),
        (f"{A}:1-2:Tag:3:_b:4,{A}:tag:4", f"{A}:1-2:_b:4:tag:3-4"),
        (f"{A}:9223372036854775806", f"{A}:9223372036854775806"),
    ],
)
def test_reads_what_people_write(text, canonical):
    """Blanks, case, order, repetition and tags result in one canonical form."""
    assert str(GtidSet.parse(text)) == canonical
    assert str(GtidSet.parse(canonical)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "x",
        A,
        f"{A}:",
        f"{A}:0",
        f"{A}:3-1",
        f"{A}:1-",
        f"{A}:-1",
        f"{A}:1-2-3",
        f"{A}:9223372036854775807",
        f"{A}:99999999999999999999",
        f"{A}:9a:1",
        f"{A}:{'t' * 33}:1",
        f"{A}:\u0661",
        f"{A[:-1]}:1",
        f"{A[:-1]}g:1",
        "0-1-5",
    ],
)
def test_names_what_it_cannot_read(text):
    """Invalid text is an error that quotes the item."""
    with pytest.raises(ValueError, match="not a GTID"):
        GtidSet.parse(text)


def test_text_follows_every_addition(rng):
    """Rendering after each of many additions equals a fresh rendering."""
    for _ in range(60):
        found, model = GtidSet(), set()
        order = sorted(random_model(rng))
        if rng.random() < 0.5:
            rng.shuffle(order)
        for sid, tag, number in order:
            found.add(sid, number, tag)
            model.add((sid, tag, number))
            assert str(found) == model_text(model)


def test_growth_past_every_digit():
    """Adding one number after the other, with sets on both sides, stays correct."""
    found = GtidSet.parse(f"{A}:1-5,{B}:7")
    for number in range(6, 1205):
        found.add(SIDS[0], number)
        assert str(found) == f"{A}:1-{number},{B}:7"
    for number in range(8, 120):
        found.add(SIDS[1], number)
        assert str(found) == f"{A}:1-1204,{B}:7-{number}"
    found.add(SIDS[0], 1205)
    assert str(found) == f"{A}:1-1205,{B}:7-119"


def beside(one, two):
    """Return what is neither in a plain set nor after the first of its group."""
    first: dict[tuple[bytes, str], int] = {}
    for sid, tag, number in two:
        first[sid, tag] = min(number, first.get((sid, tag), number))
    return {
        (sid, tag, number)
        for sid, tag, number in one
        if number < first.get((sid, tag), number + 1)
    }


def test_algebra(rng):
    """Union, difference, inclusion, equality and copies are those of plain sets."""
    for _ in range(300):
        one, two = random_model(rng), random_model(rng)
        if rng.random() < 0.3:
            two &= one
        first, second = gtid_set(one, rng), gtid_set(two, rng)
        assert str(first.union(second)) == model_text(one | two)
        assert str(first.subtract(second)) == model_text(one - two)
        assert first.contains(second) == (two <= one)
        assert str(first.beside(second)) == model_text(beside(one, two))
        assert (first == second) == (one == two)
        assert bool(first) == bool(one)
        copied = first.copy()
        copied.add(SIDS[0], 1000)
        assert str(first) == model_text(one)


def test_bytes_come_back(rng):
    """What is encoded reads back as the same set, with and without tags."""
    for _ in range(300):
        found = gtid_set(random_model(rng), rng)
        assert GtidSet.decode_previous_gtids(found.encode()) == found


def test_bytes_without_tags():
    """A set without tags has the format that all servers know."""
    assert GtidSet().encode() == bytes(8)
    assert GtidSet.parse(f"{A}:1-3:7").encode() == struct.pack(
        "<Q16sQqqqq", 1, SIDS[0], 2, 1, 4, 7, 8
    )


def test_bytes_with_tags():
    """What a real server wrote is read, and written the same."""
    found = GtidSet.decode_previous_gtids(TAGGED_BODY)
    assert str(found) == TAGGED_TEXT
    assert found.encode() == TAGGED_BODY


@pytest.mark.parametrize(
    "body",
    [
        b"",
        bytes(7),
        struct.pack("<Q", 1),
        struct.pack("<Q16s", 1, SIDS[0]),
        struct.pack("<Q16sQq", 1, SIDS[0], 1, 1),
        struct.pack("<Q16sQqq", 1, SIDS[0], 1, 0, 4),
        struct.pack("<Q16sQqq", 1, SIDS[0], 1, 4, 4),
        struct.pack("<Q16sQqq", 1, SIDS[0], 1, 1, -5),
        struct.pack("<Q16sQ", 1, SIDS[0], 2**63),
        struct.pack("<Q16sB", 1 << 56 | 1 << 8 | 1, SIDS[0], 66),
        struct.pack("<Q16sB2sQ", 1 << 56 | 1 << 8 | 1, SIDS[0], 4, b"A\xff", 0),
        TAGGED_BODY[:-1],
    ],
)
def test_bytes_that_are_none(body):
    """A truncated or inconsistent body is an error."""
    with pytest.raises(ValueError, match="GTID set"):
        GtidSet.decode_previous_gtids(body)


def test_refuses_to_add_what_is_none():
    """A number, uuid or tag out of range is an error, and changes nothing."""
    found = GtidSet()
    for sid, number, tag in (
        (SIDS[0], 0, ""),
        (SIDS[0][:15], 1, ""),
        (SIDS[0], 1, "Upper"),
        (SIDS[0], 1, "t" * 33),
    ):
        with pytest.raises(ValueError, match="not a GTID"):
            found.add(sid, number, tag)
    assert not found


def test_agrees_with_mysql(mysql_server, rng):
    """A real server subtracts, compares and normalizes sets as we do."""
    for _ in range(60):
        one = gtid_set(random_model(rng), rng)
        two = gtid_set(random_model(rng), rng)
        ((difference, subset, normal),) = mysql_server.execute(
            f"SELECT GTID_SUBTRACT('{one}', '{two}'), GTID_SUBSET('{two}', '{one}'),"
            f" GTID_SUBTRACT('{one},{two}', '')"
        )
        assert str(one.subtract(two)) == difference.replace("\n", "")
        assert one.contains(two) == bool(subset)
        assert str(one.union(two)) == normal.replace("\n", "")


def test_damaged_bytes(rng):
    """Any change of the bytes results in a set or a ValueError."""
    for _ in range(2000):
        body = bytearray(TAGGED_BODY if rng.random() < 0.5 else TAGGED_BODY[:80])
        for _ in range(rng.randrange(4)):
            body[rng.randrange(len(body))] = rng.choice(
                (0, 1, 2, 66, rng.randrange(256))
            )
        try:
            found = GtidSet.decode_previous_gtids(bytes(body[: rng.randrange(1, 400)]))
        except ValueError:
            continue
        assert GtidSet.parse(str(found)) == found


def hostile(values: Iterable[int], per_group: int) -> bytes:
    """Return a PREVIOUS_GTIDS body of runs in this order, so many to a server."""
    parts = [b""]
    groups = 0
    runs = array("Q")
    for value in values:
        runs.extend((value, value + 1))
        if len(runs) == 2 * per_group:
            sid = (groups if per_group > 1 else value).to_bytes(16, "big")
            parts.append(sid + struct.pack("<Q", per_group) + runs.tobytes())
            runs = array("Q")
            groups += 1
    parts[0] = struct.pack("<Q", groups)
    return b"".join(parts)


@pytest.mark.parametrize("per_group", [2_000_000, 1])
def test_order_of_a_hostile_source(per_group):
    """Numbers and servers in descending order are sorted once, not moved each time.

    If each moved all others, this would exceed the time limit of a test.
    """
    count = 2_000_000 if per_group > 1 else 700_000
    ascending = range(1, 2 * count, 2)
    found = GtidSet.decode_previous_gtids(hostile(reversed(ascending), per_group))
    assert found.encode() == hostile(ascending, per_group)
    # So are those that were added before, and what is left of them.
    assert found.union(found) == found
    assert not found.subtract(found)


def test_overlaps_in_any_order(rng):
    """Overlapping runs result in the set that they form one by one."""
    for _ in range(300):
        items = [
            (rng.choice(SIDS), rng.choice(TAGS), start, start + rng.randint(0, 9))
            for start in (rng.randint(1, 60) for _ in range(rng.randint(1, 12)))
        ]
        model = {
            (sid, tag, number)
            for sid, tag, first, last in items
            for number in range(first, last + 1)
        }
        body = struct.pack("<Q", 1 << 56 | len(items) << 8 | 1) + b"".join(
            sid
            + bytes([len(tag) << 1])
            + tag.encode()
            + struct.pack("<QQQ", 1, first, last + 1)
            for sid, tag, first, last in items
        )
        found = GtidSet.decode_previous_gtids(body)
        assert str(found) == model_text(model)
        assert found == gtid_set(model, rng)
