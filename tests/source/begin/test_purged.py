"""The message when a source has purged needed data: the files, and the remedy."""

from __future__ import annotations

import pytest

from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.mysql.binlogs import BinaryLog
from canal_server.source.begin.purged import purged_message
from canal_server.source.read.available_positions import SourceFiles

FILES = SourceFiles((BinaryLog("binlog.000007", 500),))
HERE = LogIdentity("127.0.0.1", 3306)
ELSEWHERE = LogIdentity("127.0.0.1", 3307)
MISSING = "; missing: binlog.000006, the oldest file is now binlog.000007"


def at(identity: LogIdentity, file: str) -> LogPosition:
    """Return a stored position."""
    return LogPosition(identity, EntryPosition(file, 4))


@pytest.mark.parametrize(
    ("stored", "back"),
    [
        (at(HERE, "binlog.000006"), f"{MISSING}; restore the files, or "),
        (at(HERE, "binlog.000008"), "; "),  # the binlog was reset
        (at(ELSEWHERE, "binlog.000006"), "; "),
    ],
)
def test_single_source(stored: LogPosition, back: str) -> None:
    """Files are named where they are this server's, and existed once."""
    who = "with a position of another binlog or server"
    if back != "; ":
        who = "as purged"
    assert purged_message("gone", "shop", stored, HERE, FILES) == (
        f"gone{back}reload the tables and run `canal-server position seek"
        " --destination shop --client-id ID --to oldest` to resume at the oldest file,"
        " for"
        f" each client that `canal-server position show` shows {who}; the others resume"
        " automatically"
    )


def test_the_conf_folder() -> None:
    """Both commands name it, where it is known."""
    stored = at(HERE, "binlog.000006")
    conf = "--conf '/etc/my canal' "
    shown = purged_message("gone", "shop", stored, HERE, FILES, conf_option=conf)
    assert f"`canal-server position seek {conf}--destination shop" in shown
    assert f"`canal-server position show {conf.strip()}`" in shown


def test_nothing_stored() -> None:
    """Without any client the remedy is the configured position, not a seek."""
    shown = purged_message("gone", "shop", None, HERE, FILES)
    assert "canal.instance.master.journal.name" in shown
    assert "position seek" not in shown


def test_one_of_a_group() -> None:
    """The command names the source, and the others are said to continue."""
    shown = purged_message(
        "gone", "shop/master2", at(HERE, "binlog.000006"), HERE, FILES
    )
    assert "--destination shop --source master2 --client-id ID --to oldest`" in shown
    assert shown.endswith("; the other sources of shop continue")
