"""Warnings about settings of message queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fix_conf import ACCOUNT

from canal_server.config.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAIN = "canal.destinations = example\ncanal.serverMode = {mode}\n"
INSTANCE = f"canal.instance.master.address = db:3306\n{ACCOUNT}"


@pytest.fixture
def warned(make_conf: Any) -> Callable[..., Sequence[str]]:
    """Give a function that returns the warnings of lines in both files."""

    def run(main: str = "", own: str = "", mode: str = "kafka") -> Sequence[str]:
        conf = make_conf(
            f"{MAIN.format(mode=mode)}{main}\n", example=f"{INSTANCE}{own}\n"
        )
        warnings: Sequence[str] = load(conf, {}).warnings
        return warnings

    return run


@pytest.mark.parametrize("word", ["$pk", "pk$", "$PK", "$pks$", "id^$pk$"])
def test_a_primary_key_that_is_misspelt(
    warned: Callable[..., Sequence[str]], word: str
) -> None:
    """It would be a column: the item and the file are named, and what to write."""
    (line,) = warned(own=rf"canal.mq.partitionHash = a\\.b:id,shop\\..*:{word}")
    assert rf"/instance.properties: canal.mq.partitionHash = shop\..*:{word}: " in line
    assert line.endswith("for the primary key, write $pk$ alone after the colon")


def test_a_space_before_the_primary_key(warned: Callable[..., Sequence[str]]) -> None:
    """It belongs to the name of a column, which the warning quotes."""
    (line,) = warned(own=r"canal.mq.partitionHash = a.b:id , shop\\..*: $pk$ ")
    assert r": canal.mq.partitionHash = shop\..*: $pk$: ' $pk$' is taken for" in line
    assert line.endswith("for the primary key, write $pk$ right after the colon")
    assert warned(own=r"canal.mq.partitionHash = a.b:id , shop\\..*:$pk$ ") == ()


@pytest.mark.parametrize("item", [r"shop\\..*:$pk$", "a.b:$PK$", "a.pk$", "a.b:id^pk"])
def test_hashes_that_are_meant_so(
    warned: Callable[..., Sequence[str]], item: str
) -> None:
    """The key as it is written, tables and columns give no warning."""
    assert warned(own=f"canal.mq.partitionHash = {item}") == ()
    assert warned(own="canal.mq.partitionHash = a.b:$pk", mode="tcp") == ()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("canal.mq.canalGetTimeout = 50", "changes are fetched as soon as there are"),
        ("canal.mq.send.thread.size = 4", "one thread sends for each destination"),
        ("canal.mq.build.thread.size = 4", "the thread that sends makes the messages"),
        ("canal.mq.transaction = true", "set canal.mq.exactlyOnce = true"),
        ("kafka.interceptor.classes = a.B", "classes of Java are not loaded"),
        ("kafka.partitioner.class = a.B", "canal.mq.partitionHash choose partitions"),
    ],
)
def test_keys_of_the_java_server_without_effect(
    warned: Callable[..., Sequence[str]], line: str, why: str
) -> None:
    """Each is reported once, with its file, its value and the reason."""
    (found,) = warned(line)
    assert f"/canal.properties: {line}: has no effect here: " in found
    assert why in found
    assert warned(line, mode="tcp") == ()


@pytest.mark.parametrize(
    "line",
    [
        "canal.mq.canalGetTimeout = 100",
        "canal.mq.send.thread.size = 30",
        "canal.mq.build.thread.size = 8",
        "canal.mq.transaction = false",
        "kafka.interceptor.classes =",
        "canal.mq.lingerMs = 5",
    ],
)
def test_values_of_the_java_servers_files(
    warned: Callable[..., Sequence[str]], line: str
) -> None:
    """What asks for nothing, or is read, gives no warning."""
    assert warned(line) == ()


def test_an_old_key_that_hides_a_new_one(
    warned: Callable[..., Sequence[str]],
) -> None:
    """Both are named with their values, unless these are equal."""
    new = "kafka.bootstrap.servers = new:9092\n"
    (line,) = warned(f"{new}canal.mq.servers = old:9092")
    assert (
        "canal.mq.servers = old:9092: takes precedence over kafka.bootstrap.servers ="
        " new:9092, as in the Java server"
    ) in line
    assert warned(f"{new}canal.mq.servers = new:9092") == ()
