"""GTID sets of MariaDB: text, growth, algebra, and a real server's binlog."""

from __future__ import annotations

import struct

import pytest

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import MariaGtidSet as FromGtid


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("0-1-5", "0-1-5"),
        (" 1-2-3 ,\n0-1-5,", "0-1-5,1-2-3"),
        ("0-1-5,0-2-7", "0-2-7"),
        ("0-2-7,0-1-5", "0-1-5"),
        (
            "4294967295-4294967295-18446744073709551615",
            "4294967295-4294967295-18446744073709551615",
        ),
    ],
)
def test_reads_what_people_write(text, canonical):
    """Domains are sorted; the last one counts of a repeated domain."""
    assert str(MariaGtidSet.parse(text)) == canonical
    assert MariaGtidSet.parse(text).encode() == canonical.encode()


@pytest.mark.parametrize(
    "text", ["x", "1-2", "1-2-3-4", "1--3", "a-1-2", "4294967296-1-1", "0-1-\u0661"]
)
def test_names_what_it_cannot_read(text):
    """Invalid text is an error that quotes the item."""
    with pytest.raises(ValueError, match="not a GTID"):
        MariaGtidSet.parse(text)


def test_text_follows_every_update(rng):
    """After each of many updates the text has the domains' last positions."""
    found, positions = MariaGtidSet(), {}
    for _ in range(500):
        domain, server = rng.randrange(40), rng.randrange(3)
        sequence = rng.getrandbits(rng.randint(1, 64))
        found.update(domain, server, sequence)
        positions[domain] = f"{domain}-{server}-{sequence}"
        assert str(found) == ",".join(positions[key] for key in sorted(positions))


@pytest.mark.parametrize(
    ("one", "two", "union", "difference", "contains"),
    [
        ("", "", "", "", True),
        ("0-1-5", "", "0-1-5", "0-1-5", True),
        ("", "0-1-5", "0-1-5", "", False),
        ("0-1-5", "0-2-5", "0-1-5", "", True),
        ("0-1-5", "0-1-7", "0-1-7", "", False),
        ("0-1-7,1-1-1", "0-2-5", "0-1-7,1-1-1", "0-1-7,1-1-1", True),
        ("0-1-7,1-1-1", "1-9-2", "0-1-7,1-9-2", "0-1-7", False),
    ],
)
def test_algebra(one, two, union, difference, contains):
    """Domain by domain the later position counts."""
    first, second = MariaGtidSet.parse(one), MariaGtidSet.parse(two)
    assert str(first.union(second)) == union
    assert str(first.subtract(second)) == difference
    assert first.contains(second) is contains
    assert (first == second) == (one == two)
    assert bool(first) == bool(one)
    copied = first.copy()
    copied.update(9, 9, 9)
    assert str(first) == one


def test_beside():
    """Domains that the other set does not know are returned, however far they are."""
    one = MariaGtidSet.parse("0-1-9,1-1-1,4-7-7")
    assert str(one.beside(MariaGtidSet.parse("0-1-5,1-2-3,9-9-9"))) == "4-7-7"
    assert not one.beside(one)
    assert one.beside(MariaGtidSet()) == one


def test_reads_a_gtid_list():
    """All domains of the event are read, the flags of its count are not."""
    body = struct.pack("<IIIQIIQ", 0x10000002, 0, 1, 5, 7, 8, 9)
    assert str(MariaGtidSet.decode_gtid_list(body)) == "0-1-5,7-8-9"
    for cut in range(len(body)):
        with pytest.raises(ValueError, match=f"after {cut} bytes"):
            MariaGtidSet.decode_gtid_list(body[:cut])


def test_refuses_numbers_out_of_range():
    """Numbers out of range are an error."""
    for numbers in ((-1, 1, 1), (1, 2**32, 1), (1, 1, 2**64)):
        with pytest.raises(ValueError, match="not a GTID"):
            MariaGtidSet().update(*numbers)


def test_is_found_beside_mysqls():
    """Both kinds of sets can be imported from one module."""
    assert FromGtid is MariaGtidSet


def test_agrees_with_mariadb(mariadb_server, database):
    """The text of a real server is in our form already."""
    mariadb_server.execute(f"CREATE TABLE {database}.t (a INT)")
    ((text,),) = mariadb_server.execute("SELECT @@global.gtid_binlog_pos")
    found = MariaGtidSet.parse(text)
    assert found
    assert str(found) == text


def test_order_of_a_hostile_source():
    """Domains in descending order are sorted once, not moved each time."""
    count = 1_500_000
    item = struct.Struct("<IIQ")
    parts = [item.pack(domain, 1, domain + 1) for domain in range(count)]
    body = b"".join(reversed([*parts, item.pack(7, 2, 9)]))  # the last one counts
    found = MariaGtidSet.decode_gtid_list(struct.pack("<I", count + 1) + body)
    assert str(found) == ",".join(f"{domain}-1-{domain + 1}" for domain in range(count))
