"""Exported tables as a document, and documents that are not what was written."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from fix_table_history import SHOP, TRAITS, UUID, position_at

from canal_server.errors import TableMetaError
from canal_server.tablemeta.history.schema_document import (
    Exported,
    from_document,
    to_document,
)
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.storage.history_storage import DdlRecord, StoredSchema

OTHER = StoredSchema("ü\n`", "", (("t", "CREATE TABLE `t` (`ä'\\` int)"),), (), ("t",))
EXPORTED = Exported(UUID, TRAITS, position_at(500, gtid=f"{UUID}:1-7"), (*SHOP, OTHER))


def signed(content):
    """Return a document with this content and the checksum of it."""
    content = {key: value for key, value in content.items() if key != "checksum"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({**content, "checksum": f"sha256:{digest}"})


def test_what_is_written_is_read():
    """A document gives the same tables, position and server again."""
    assert from_document(to_document(EXPORTED)) == EXPORTED
    assert EXPORTED.count == 2


def test_statement_before_the_position():
    """A statement whose effect the tables have comes with all that is known of it."""
    later = DdlRecord(
        position_at(499, gtid=f"{UUID}:7"),
        "shop",
        "DROP TABLE `ü`",
        Context(schema="shop", sql_mode=4, thread_id=9),
        contained=True,
        event_type="ERASE",
        sql_schema="shop",
        sql_table="ü",
    )
    exported = replace(EXPORTED, statement=later)
    text = to_document(exported)
    assert from_document(text) == exported
    content = json.loads(text)
    content["behind"] = content.pop("statement")  # its name before the first release
    assert from_document(signed(content)) == exported


def test_form_does_not_matter():
    """Blanks and the order of keys are not part of the content."""
    content = json.loads(to_document(EXPORTED))
    text = json.dumps(dict(reversed(content.items())))
    assert from_document(text) == EXPORTED


def changed(**values):
    """Return the document with other values."""
    return json.dumps(json.loads(to_document(EXPORTED)) | values)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not valid JSON"),
        ("[" * 200_000, "not valid JSON"),
        ("[]", "not a JSON object with the format"),
        ("{}", "not a JSON object with the format"),
        (changed(format="x"), "not a JSON object with the format"),
        (
            changed(version=2),
            "unsupported version 2, this canal-server reads version 1",
        ),
        (changed(server="x"), "the checksum does not match the content"),
        (changed(schemas=[]), "the checksum does not match the content"),
        (changed(checksum=None), "the checksum does not match the content"),
        (to_document(EXPORTED)[:-200], "not valid JSON"),
    ],
)
def test_other_documents(text, problem):
    """What is not a whole document of this version is an error that says why."""
    with pytest.raises(TableMetaError, match=problem):
        from_document(text)


@pytest.mark.parametrize("part", ["server", "traits", "position", "schemas"])
def test_a_missing_part(part):
    """A document with a valid checksum but a missing field is refused."""
    content = json.loads(to_document(EXPORTED))
    del content[part]
    with pytest.raises(TableMetaError, match=f"a field is missing .*{part}"):
        from_document(signed(content))
