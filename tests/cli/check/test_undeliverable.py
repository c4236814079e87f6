"""Settings with which a destination cannot be delivered: found by the command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fix_conf import ACCOUNT

from canal_server.cli import main

if TYPE_CHECKING:
    from pathlib import Path

MAIN = """canal.destinations = example
canal.serverMode = kafka
kafka.bootstrap.servers = 127.0.0.1:1
canal.mq.exactlyOnce = true
"""
OWN = f"""canal.instance.master.address = 127.0.0.1:1
{ACCOUNT}
"""


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("canal.instance.filter.transaction.entry = true", "leaves out where"),
        ("canal.auto.reset.latest.pos.mode = true", "skips changes"),
        (
            "canal.instance.global.spring.xml = classpath:spring/memory-instance.xml",
            "begins at the end of the binlog at each start",
        ),
    ],
)
def test_what_a_start_refuses(
    make_conf: Any, capsys: pytest.CaptureFixture[str], line: str, text: str
) -> None:
    """It is invalid here, too, with the same text; nothing else is looked at."""
    conf: Path = make_conf(f"{MAIN}{line}\n", example=OWN)
    assert main(["check", "--conf", str(conf)]) == 2
    output = capsys.readouterr().out
    assert text in output
    assert "are valid" not in output


def test_settings_of_the_producer(
    make_conf: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a start refuses of them is invalid here, too: all of them, by key."""
    pytest.importorskip("confluent_kafka", reason="no extra `kafka`")
    wrong = "kafka.batch.size = 12k\nkafka.acks = 1\nkafka.compression.type = zip\n"
    conf: Path = make_conf(MAIN + wrong, example=OWN)
    assert main(["check", "--conf", str(conf)]) == 2
    output = capsys.readouterr().out
    assert output.count("FAIL") == 2
    assert "canal.properties: kafka.batch.size = 12k: write a number" in output
    assert "kafka.compression.type = zip: write none, gzip, snappy" in output
    assert "are valid" not in output
