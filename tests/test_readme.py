"""What the README shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server import client
from canal_server.protocol.entries import encode

if TYPE_CHECKING:
    import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
ROW = client.Entry(
    header=client.Header(
        schema_name="shop", table_name="orders", event_type=client.EventType.INSERT
    ),
    entry_type=client.EntryType.ROWDATA,
    store_value=encode(
        client.RowChange(
            row_datas=(
                client.RowData(after_columns=(client.Column(name="id", value="7"),)),
            )
        )
    ),
)
END = client.Entry(entry_type=client.EntryType.TRANSACTIONEND)


def test_client_sample(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sample takes ten lines or so and prints the rows of one message."""
    (sample,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in sample.splitlines() if line]) <= 10

    filters: list[str] = []
    monkeypatch.setattr(client.CanalClient, "connect", lambda _: None)
    monkeypatch.setattr(
        client.CanalClient, "subscribe", lambda _, wanted: filters.append(wanted)
    )
    monkeypatch.setattr(
        client.CanalClient, "messages", lambda _: iter([client.Message(1, (ROW, END))])
    )
    exec(sample, {})
    assert filters == [r"shop\..*"]
    printed = capsys.readouterr().out
    assert printed.startswith("orders ")
    assert "{'id': '7'}" in printed


def test_links() -> None:
    """Every file that the README points to is there."""
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", README)
    assert links
    missing = [
        link for link in links if not (Path(__file__).parent.parent / link).exists()
    ]
    assert missing == []
