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


@pytest.mark.parametrize("item", [r"shop\\..*:$pk$", "a.b:$PK$", "a.pk$", "a.b:id^pk"])
def test_hashes_that_are_meant_so(
    warned: Callable[..., Sequence[str]], item: str
) -> None:
    """The key as it is written, tables and columns give no warning."""
    assert warned(own=f"canal.mq.partitionHash = {item}") == ()
    assert warned(own="canal.mq.partitionHash = a.b:$pk", mode="tcp") == ()
