"""What is checked of the position of a table history."""

from __future__ import annotations

import os

import pytest

from canal_server.cli.check.history_checks import check_history, database_result
from canal_server.config.schema import InstanceConfig, TableMetaConfig
from canal_server.model.check_results import Outcome
from canal_server.mysql.account_grants import parse_grants
from canal_server.tablemeta.storage.open_storage import open_storage
from canal_server.tablemeta.storage.sqlite_storage import FILE_NAME

RIGHTS = "GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON `h`.* TO `u`@`%`"


def config_of(folder, **more):
    """Return the settings of a destination whose history is in a folder."""
    return InstanceConfig(
        destination="example", table_meta=TableMetaConfig(dir=folder, **more)
    )


def test_a_history_in_a_file(tmp_path, monkeypatch):
    """1. it can be created; 2. it exists; 3. it is read-only; 4. it is damaged."""
    config = config_of(tmp_path / "example")
    found = check_history(config)
    assert found.outcome is Outcome.OK
    assert found.text.endswith(f"{FILE_NAME} can be created")
    assert not (tmp_path / "example").exists()

    storage = open_storage(config)
    storage.open()
    # A server may have it open.
    found = check_history(config)
    assert found.outcome is Outcome.OK
    assert found.text.endswith("can be read and written")
    storage.close()

    monkeypatch.setattr(os, "access", lambda *_: False)
    found = check_history(config)
    assert found.outcome is Outcome.FAIL
    assert "cannot be written" in found.text
    monkeypatch.undo()

    (tmp_path / "example" / FILE_NAME).write_bytes(b"no database" * 1000)
    found = check_history(config)
    assert found.outcome is Outcome.FAIL
    assert FILE_NAME in found.text


def test_a_folder_that_is_in_the_way(tmp_path):
    """The key that names the folder is the remedy."""
    (tmp_path / "file").touch()
    found = check_history(config_of(tmp_path / "file" / "example"))
    assert found.outcome is Outcome.FAIL
    assert f"{tmp_path}/file is not a folder" in found.text
    assert found.remedy == "set canal.instance.tsdb.dir"


def test_no_history(tmp_path):
    """Without one, the columns of old rows are guesses."""
    found = check_history(config_of(tmp_path, enable=False))
    assert found.outcome is Outcome.WARN
    assert found.remedy == "set canal.instance.tsdb.enable = true"


@pytest.mark.parametrize(
    ("rows", "exists", "is_read_only", "outcome", "words"),
    [
        ([RIGHTS], True, False, Outcome.OK, "can be read and written"),
        (["GRANT ALL PRIVILEGES ON *.* TO `u`@`%`"], True, False, Outcome.OK, ""),
        ([RIGHTS], False, False, Outcome.FAIL, "there is no database h on db:1"),
        ([RIGHTS], True, True, Outcome.FAIL, "the server is read-only"),
        (
            ["GRANT SELECT, INSERT ON `h`.* TO `u`@`%`"],
            True,
            False,
            Outcome.FAIL,
            "account u lacks CREATE, UPDATE, DELETE",
        ),
        ([], True, False, Outcome.FAIL, "lacks CREATE, SELECT, INSERT, UPDATE, DELETE"),
        (None, True, False, Outcome.SKIP, "does not show grants"),
        (None, False, False, Outcome.FAIL, "there is no database"),
    ],
)
def test_a_database(rows, exists, is_read_only, outcome, words):
    """It must exist, be writable, and the account needs five privileges on it."""
    found = database_result(
        "h",
        "h on db:1",
        exists=exists,
        is_read_only=is_read_only,
        grants=None if rows is None else parse_grants(rows),
        account=("u", "%"),
    )
    assert found.outcome is outcome
    assert words in found.text
