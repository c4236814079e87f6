"""The options of the source: what is read, and what is refused with which words."""

from __future__ import annotations

import pickle
import re

import pytest

from canal_server.errors import ConfigError
from canal_server.spark.options.source_options import (
    OPTIONS,
    Address,
    TableName,
    read_options,
)

STREAM = {"destination": "example", "subscription": "lake"}


def read(streaming=True, /, **options):
    """Read the options of a stream or batch read."""
    return read_options(options, streaming=streaming)


def problems(streaming=True, /, **options):
    """Return what is wrong with options."""
    with pytest.raises(ConfigError) as raised:
        read(streaming, **options)
    return raised.value.problems


def test_a_stream_needs_two_options() -> None:
    """A destination and a subscription are enough; the rest has defaults."""
    options = read(**STREAM)
    assert options.servers == (Address("127.0.0.1", 11111),)
    assert options.destinations == ("example",)
    assert options.table is None
    assert options.fail_on_data_loss


def test_names_do_not_mind_their_case() -> None:
    """Spark hands names over in any case."""
    assert read(DESTINATION="a", subScription="s", MaxRowsPerTrigger="5") == read(
        destination="a", subscription="s", maxRowsPerTrigger="5"
    )


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("db", [("db", 11111)]),
        ("a:1, b:65535 ,", [("a", 1), ("b", 65535)]),
        ("[::1]:4,[fe80::2]", [("::1", 4), ("fe80::2", 11111)]),
    ],
)
def test_servers(text, servers) -> None:
    """A list of addresses, each with the usual port when it has none."""
    assert read(servers=text, **STREAM).servers == tuple(
        Address(*each) for each in servers
    )


def test_addresses_are_written_as_they_are_read() -> None:
    """An IPv6 address is separated from its port."""
    for text in ("db:1", "[::1]:2"):
        (address,) = read(servers=text, **STREAM).servers
        assert str(address) == text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"servers": "a:b"}, r"servers = 'a:b'.*host:port"),
        ({"servers": "a:70000"}, "port 70000 is out of range"),
        ({"servers": " , "}, "separated by commas"),
        ({"subscription": "a b"}, "1 to 100 characters of"),
        ({"destination": "a,,b"}, "without empty ones"),
        ({"destination": "a,b,a"}, "a name is given twice"),
        ({"table": "orders"}, r"write schema\.table"),
        ({"table": "a.b,c.d"}, "one table is possible"),
        ({"payload": "xml"}, "write map, json or arrow"),
        ({"updates": "all", "table": "a.b"}, "postimage, both or envelope"),
        ({"startingPosition": "yesterday"}, "write acked, earliest, latest, time:"),
        (
            {"startingPosition": "time:2026-01-31T12:00"},
            "write it like time:2026-01-31T",
        ),
        ({"startingPosition": "time:now"}, "milliseconds since 1970"),
        ({"failOnDataLoss": "no"}, "write true or false"),
        ({"maxRowsPerTrigger": "-1"}, "whole number of at least 0"),
        ({"maxPartitions": "0"}, "out of range; write 1 to 1024"),
        ({"pollTimeoutMs": "٣"}, "whole number"),
        ({"tabel": "a.b"}, "unknown option tabel; did you mean table?"),
        ({"zzz": "1"}, r"unknown option zzz; see docs/reference/spark\.md"),
        ({"table": "a.b", "filter": "x"}, "exclude each other"),
        ({"updates": "both"}, "option updates requires option table"),
        (
            {"payload": "ARROW", "partitionBy": "keyhash"},
            "exclude each other",
        ),
        ({"table": "a.b", "payload": "json"}, "payload has no effect with"),
        (
            {"table": "a.b", "updates": "both", "keyChanges": "split"},
            "requires updates = postimage",
        ),
        ({"endingPosition": "latest"}, "endingPosition is only for batch reads"),
    ],
)
def test_what_is_wrong_is_reported_with_its_remedy(options, words) -> None:
    """One sentence names option, value and what to write instead."""
    (problem,) = problems(**STREAM | options)
    assert re.search(words, problem), problem


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("time:1700000000000", "time:1700000000000"),
        ("time:2026-01-31T12:00:00.5+01:00", "time:1769857200500"),
        ("file:mysql-bin.000001:4", "file:mysql-bin.000001:4"),
        ("gtid:3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5", None),
    ],
)
def test_positions(text, sent) -> None:
    """A time is sent in ms, everything else as it is."""
    assert read(startingPosition=text, **STREAM).starting_position == (sent or text)


def test_all_problems_are_reported_at_once() -> None:
    """What is missing, misspelt and out of range comes in one error."""
    found = problems(maxPartitions="x", subscripton="s")
    assert len(found) == 4
    assert [word for word in ("destination", "subscription") if word in str(found)]


def test_a_password_is_not_shown() -> None:
    """Neither by the options nor by an error about them."""
    options = read(password="secret", username="me", **STREAM)
    assert "secret" not in repr(options)
    assert "secret" not in str(problems(password="secret", zzz="1", **STREAM))


def test_a_batch_read_needs_no_subscription_but_for_its_cursor() -> None:
    """`acked` is where a subscription stands, so then it must be named."""
    assert not read(False, destination="a").subscription
    assert "set option subscription" in str(
        problems(False, destination="a", endingPosition="acked")
    )


@pytest.mark.parametrize(
    ("start", "end", "is_wrong"),
    [
        ("time:2000", "time:1000", True),
        ("time:1000", "time:2000", False),
        ("time:1970-01-01T00:00:02+00:00", "time:1999", True),
        ("file:bin.000010:4", "file:bin.000009:900", True),
        ("file:bin.999999:900", "file:bin.1000000:4", False),
        ("file:bin.000009:900", "file:bin.000009:900", False),
        ("latest", "earliest", True),
        ("time:2000", "file:bin.000001:4", False),
        ("gtid:a", "gtid:b", False),
    ],
)
def test_an_end_before_the_start(start, end, is_wrong) -> None:
    """The order of positions of one kind is checked without a server."""
    positions = {"startingPosition": start, "endingPosition": end}
    if is_wrong:
        assert "is before" in str(problems(False, destination="a", **positions))
    else:
        assert read(False, destination="a", **positions)


def test_nothing_of_one_use_is_missed_before_it_is_known() -> None:
    """The schema is asked for before Spark says whether this is a stream."""
    assert read(None, destination="a", endingPosition="latest")


def test_the_table_becomes_a_filter_that_matches_nothing_else() -> None:
    """Characters that mean something in expressions are quoted."""
    options = read(table="my-db.a$b(c)", **STREAM)
    assert options.table == TableName("my-db", "a$b(c)")
    assert re.fullmatch(options.wire_filter, "my-db.a$b(c)")
    assert not re.fullmatch(options.wire_filter, "my-dbxa$b(c)")
    assert read(filter=r"shop\..*", **STREAM).wire_filter == r"shop\..*"


def test_an_update_of_the_key_is_split_where_the_old_one_would_be_lost() -> None:
    """Only a stream of post-images needs a delete of the old key."""
    table = STREAM | {"table": "a.b"}
    assert read(**table).key_changes == "split"
    assert read(**table, updates="postimage").key_changes == "split"
    assert read(**table, updates="both").key_changes == "keep"
    assert read(**table, keyChanges="KEEP").key_changes == "keep"


def test_tasks_with_keys_of_their_own_have_updates_of_keys_split() -> None:
    """The old key and the new one are different tasks', so neither row is for both."""
    table = STREAM | {"table": "a.b", "partitionBy": "KeyHash"}
    assert read(**table).partition_by == "keyhash"
    for updates in ("postimage", "both", "envelope"):
        assert read(**table, updates=updates).key_changes == "split"
        assert read(**table, updates=updates, keyChanges="split")
        assert "partitionBy" in str(
            problems(**table, updates=updates, keyChanges="keep")
        )
    assert read(**STREAM).partition_by == "range"
    assert read(partitionBy="keyhash", **STREAM)


def test_options_travel() -> None:
    """They go to executors inside of readers, and are keys there."""
    options = read(table="a.b", **STREAM)
    again = pickle.loads(pickle.dumps(options))
    assert again == options
    assert hash(again) == hash(options)


def test_every_option_is_documented() -> None:
    """docs/reference/spark.md has a line for each option."""
    from pathlib import Path  # noqa: PLC0415

    text = (Path(__file__).parents[3] / "docs/reference/spark.md").read_text()
    missing = [each.name for each in OPTIONS if f"| `{each.name}` |" not in text]
    assert not missing
