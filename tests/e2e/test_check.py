"""`check` next to a real server, and what a start reports of the same set-up."""

from __future__ import annotations

import json

from fake_mysql import account

from canal_server import cli


def checks_of(pipeline, capsys):
    """Run the command; returns its exit status, and the results by name."""
    capsys.readouterr()
    status = cli.main(["check", "--conf", str(pipeline.conf), "--json"])
    found = json.loads(capsys.readouterr().out)["checks"]
    return status, {each["check"]: each for each in found}


def test_before_while_and_after(make_pipeline, source_server, database, capsys):
    """1. before the start; 2. while it serves a client, with a fixed id; 3. after it.

    Nothing fails: folder, port and replica are those of the server itself.
    """
    source_server.execute(f"CREATE TABLE {database}.t (a INT)")
    settings = {"canal.instance.mysql.slaveId": 4711, "canal.port": 0}
    pipeline = make_pipeline(source_server, database, settings)
    assert checks_of(pipeline, capsys)[0] == 0
    pipeline.start()
    with pipeline.client(1001) as client:
        source_server.execute(f"INSERT INTO {database}.t VALUES (1)")
        pipeline.rows(client, 1)
        pipeline.settle(client)
        status, found = checks_of(pipeline, capsys)
        assert status == 0
        assert "in use by this server" in found["data_folder"]["text"]
        assert "client 1001 is at " in found["cursors"]["text"]
        hidden = source_server.can("REPLICATION MASTER ADMIN")
        expected = "skip" if hidden else "ok"
        assert found["other_replicas"]["outcome"] == expected
    pipeline.stop()
    status, found = checks_of(pipeline, capsys)
    assert status == 0, "the source may not have noticed: that is a warning"
    assert "no server uses it" in found["data_folder"]["text"]
    assert found["start_position"]["text"].startswith("starts at the stored positions")


def test_a_start_reports_all_failures(make_pipeline, source_server, database, capsys):
    """One error has what `check` lists, before anything is read of the binlog."""
    user = f"u{database[-8:]}"
    settings = {
        "canal.instance.dbUsername": user,
        "canal.instance.dbPassword": "x",
        "canal.instance.binlog.format": "STATEMENT",
    }
    grant = f"GRANT SELECT ON *.* TO '{user}'@'%'"
    with account(source_server, user, "IDENTIFIED BY 'x'", grant):
        pipeline = make_pipeline(source_server, database, settings)
        status, found = checks_of(pipeline, capsys)
        pipeline.start()
        pipeline.wait_for_status(lambda shown: shown["error"])
        error = pipeline.status()["error"]
        pipeline.stop()
    assert status == 1
    assert error.startswith("SourceRefused: server ")
    names = ("binlog_format", "replication_slave", "replication_client")
    for name in names:
        assert found[name]["outcome"] == "fail"
        assert f"{found[name]['text']}; {found[name]['remedy']}" in error
