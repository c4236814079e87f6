"""How many transactions the lake lacks, by a real source and server."""

from __future__ import annotations

import pytest
from fix_pipeline import DESTINATION

from canal_server.client.range_client import RangedClient
from canal_server.mirror.follow.source_end import SourceEnd
from canal_server.mirror.settings.settings_file import read
from canal_server.runtime.lifecycle import Stop

TEXT = """name: shop
canal: {{servers: "127.0.0.1:{port}", destination: {destination}}}
source: {{host: db, user: canal}}
lake: {{path: lake}}
tables: [{{match: .*}}]
stream: {{retry_timeout: 1s}}
"""
COMMITS = 3


@pytest.mark.slow
def test_transactions_that_are_missing(
    make_pipeline, mysql_server, database, tmp_path
) -> None:
    """They are counted by GTIDs, until a poll has shown that nothing is missing."""
    if [*mysql_server.execute("SELECT @@gtid_mode")] != [("ON",)]:
        pytest.skip("this server has no GTIDs")
    pipeline = make_pipeline(mysql_server, database)
    pipeline.start()
    text = TEXT.format(port=pipeline.server_port, destination=DESTINATION)
    settings = read(text, str(tmp_path / "m.yml"), {})
    end = SourceEnd(settings, Stop())
    with RangedClient("127.0.0.1", pipeline.server_port) as client:
        applied = client.locate(DESTINATION, "latest", "shop")
    assert end.lacking(applied) is None  # nobody has looked yet
    pipeline.source.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    for number in range(COMMITS):
        pipeline.source.execute(f"INSERT INTO {database}.t VALUES ({number})")
    end.look()
    assert end.lacking(None) is None
    # Other tests may write to the server, too.
    assert (end.lacking(applied) or 0) >= 1 + COMMITS
    end.caught_up()
    assert end.lacking(applied) == 0
    pipeline.source.execute(f"DROP TABLE {database}.t")
    end.look()
    assert (end.lacking(applied) or 0) >= 1

    # A server that does not answer is no problem of the metrics.
    pipeline.kill()
    end.look()
