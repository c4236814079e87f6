"""What the README shows works as it stands there, and what documents link to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from canal_server import client
from canal_server.protocol.entry_messages import encode

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
README = DOCUMENTS[0].read_text()
ID = client.Column(name="id", value="7", mysql_type="int")
ROW = client.Entry(
    header=client.Header(
        schema_name="shop", table_name="orders", event_type=client.EventType.INSERT
    ),
    entry_type=client.EntryType.ROWDATA,
    store_value=encode(
        client.RowChange(row_datas=(client.RowData(after_columns=(ID,)),))
    ),
)
END = client.Entry(entry_type=client.EntryType.TRANSACTIONEND)
MESSAGE = client.Message.of_entries(1, (ROW, END))


def test_client_sample(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sample takes ten lines or so and prints the rows of one message."""
    (sample,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in sample.splitlines() if line]) <= 10

    monkeypatch.setattr(client.CanalClient, "_messages", lambda _: iter([MESSAGE]))
    exec(sample, {})
    assert r"""filter=r"shop\..*")""" in sample
    printed = capsys.readouterr().out
    assert printed.startswith("orders ")
    assert "{'id': 7}" in printed


def anchors_of(text: str) -> set[str]:
    """Return what links may name in a document: its headings, as anchors."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", each).strip().lower().replace(" ", "-")
        for each in headings
    }


@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)
def test_links(document: Path) -> None:
    """Every file and heading that a document points to is there."""
    missing = []
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", document.read_text()):
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if not target.exists() or (
            anchor and anchor not in anchors_of(target.read_text())
        ):
            missing.append(link)
    assert missing == []


def test_index_has_every_page() -> None:
    """The first page of the documents links to each of the others."""
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", (docs / "index.md").read_text()))
    pages = {str(page.relative_to(docs)) for page in docs.glob("*/*.md")}
    decisions = {page for page in pages if page.startswith("decisions/0")}
    assert linked == pages - decisions
