"""An alarm that is open when the server is killed is taken up by the next run."""

from __future__ import annotations

import json
import shlex
import sys

import pytest
from fix_store import eventually

APPEND = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_open_alarm(end, make_pipeline, make_proxy, mysql_server, database):
    """It is raised once, lasts through the end of a process, and is resolved once."""
    proxy = make_proxy(mysql_server)
    pipeline = make_pipeline(mysql_server, database, proxy=proxy)
    received = pipeline.conf.parent / "alarms"
    command = [sys.executable, "-c", APPEND, str(received)]
    main = pipeline.conf / "canal.properties"
    with main.open("a") as settings:
        settings.write("canal.alarm.after.seconds = 1\n")
        escaped = shlex.join(command).replace("\\", "\\\\")
        settings.write(f"canal.alarm.command = {escaped}\n")

    def stored():
        found = list(pipeline.conf.rglob("canal-server.alarms.json"))
        return json.loads(found[0].read_text()) if found else None

    def states():
        lines = received.read_text().splitlines() if received.exists() else []
        alarms = [json.loads(line) for line in lines]
        return [each["state"] for each in alarms if each["kind"] == "failed"]

    with proxy.refuse():
        pipeline.start()
        # It was sent, and that is known: else it would be sent once more.
        eventually(lambda: (found := stored()) and not found["unsent"])
        assert states() == ["raised"]
        getattr(pipeline, end)()
        assert stored()["raised"]
        pipeline.start()
        pipeline.wait_for_status(lambda status: status.get("error"))
    pipeline.wait_for_status(lambda status: status["state"] == "running")
    eventually(lambda: states() == ["raised", "resolved"])
    eventually(
        lambda: (
            not any(
                each["alarm"]["kind"] == "failed"
                for each in (stored() or {"raised": []})["raised"]
            )
        )
    )
