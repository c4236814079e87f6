"""`canal-server position`: clients are moved while they receive, or nobody runs."""

from __future__ import annotations

import io
import json
import threading
from contextlib import ExitStack

import pytest
from fix_pipeline import UNIT_S
from load import Load

from canal_server.cli import main
from canal_server.errors import ClientError
from canal_server.runtime.accounts import own_account

RED, BLUE = 1001, 1002
ZOOKEEPER = "classpath:spring/default-instance.xml"


def position(pipeline, *arguments):
    """Run the command on a pipeline's conf folder; returns the status."""
    return main(
        ["position", arguments[0], "--conf", str(pipeline.conf), *arguments[1:]]
    )


def seek(pipeline, to, *clients):
    """Move clients (none: all) and expect that it works."""
    options = [option for each in clients for option in ("--client", str(each))]
    assert position(pipeline, "seek", "--to", to, "--yes", *options) == 0


def shown(pipeline, capsys):
    """Return what `position show --json` says of the destination."""
    capsys.readouterr()
    assert position(pipeline, "show", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["destinations"]
    return found


def text_of(pipeline, capsys):
    """Return what `position show` says."""
    capsys.readouterr()
    assert position(pipeline, "show") == 0
    return capsys.readouterr().out


class Transactions:
    """Writes, and remembers at which positions of the binlog transactions begin."""

    def __init__(self, pipeline, writer):
        self._pipeline = pipeline
        self.writer = writer
        self.transactions = writer.transactions
        self.begins = []  # positions, and the number of the transaction there

    def write(self, count):
        """Write transactions, and remember the position in front of them."""
        file, offset = self._pipeline.source.binlog_position()
        self.begins.append((f"{file}:{offset}", len(self.transactions)))
        self.writer.write(count)


@pytest.fixture
def ledger(pipeline, rng):
    """Give the writer of positions, and a checker for what a client receives."""
    return written_to(pipeline, rng)


@pytest.fixture
def on_mysql(make_pipeline, mysql_server, database, rng):
    """Give a pipeline where the flavour of the source does not matter, its ledger."""
    pipeline = make_pipeline(mysql_server, database)
    pipeline.start()
    return pipeline, *written_to(pipeline, rng)


def written_to(pipeline, rng):
    """Return the writer of positions in a pipeline's source, and a checker of them."""
    writer = pipeline.writer(rng)
    return Transactions(pipeline, writer), pipeline.checker(writer)


def test_back_and_forth(pipeline, ledger, capsys):
    """A client that stays connected goes on where it was moved to, exactly."""
    positions, checker = ledger
    for _ in range(3):
        positions.write(4)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
        seek(pipeline, positions.begins[1][0])
        output = capsys.readouterr().out
        assert "8 transactions" in output
        assert "repeated, from 20" in output
        checker.resume(4, 4)
        pipeline.receive(client, checker, count=6, batch_size=1)
        seek(pipeline, positions.begins[2][0])
        checker.resume(8, 8)
        pipeline.receive(client, checker)
        positions.write(4)
        seek(pipeline, "latest")
        assert "skipped" in capsys.readouterr().out or checker.has(12)
        positions.write(2)
        checker.resume(16, 16)
        pipeline.receive(client, checker)
    assert checker.done == 18
    pipeline.stop()
    pipeline.start()
    positions.write(2)
    with pipeline.client() as client:
        checker.resume(18, 18)
        pipeline.receive(client, checker)


def test_dry_run_and_consent(on_mysql, capsys, monkeypatch):
    """What would happen is reported, and nothing does, without the operator's word."""
    pipeline, positions, checker = on_mysql
    positions.write(3)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
        before = shown(pipeline, capsys)["clients"]
        to = ("seek", "--to", positions.begins[0][0])
        assert position(pipeline, *to, "--dry-run") == 0
        assert "nothing was changed" in capsys.readouterr().out
        monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
        assert main(["position", *to, "--conf", str(pipeline.conf)]) == 2
        assert "--yes" in capsys.readouterr().err
        assert shown(pipeline, capsys)["clients"] == before
        positions.write(1)
        pipeline.receive(client, checker)


def test_an_open_batch_is_void(on_mysql):
    """The ack of a batch from before the move is refused; the move stands."""
    pipeline, positions, checker = on_mysql
    positions.write(3)
    positions.write(3)
    with pipeline.client() as client:
        pipeline.receive(client, checker, count=6)
        positions.write(3)
        message = next(pipeline.messages(client))
        seek(pipeline, positions.begins[1][0])
        client.ack(message.id)
        with pytest.raises(ClientError, match="is not exist , please check"):
            client.get(1)
    checker.resume(3, 3)
    with pipeline.client() as client:
        pipeline.receive(client, checker)


def test_one_of_two(pipeline, ledger, rng):
    """The other client gets nothing twice that it acked, and misses nothing."""
    positions, red = ledger
    blue = pipeline.checker(positions.writer)
    positions.write(5)
    positions.write(5)
    with pipeline.client(RED) as red_client, pipeline.client(BLUE) as blue_client:
        pipeline.receive(red_client, red)
        pipeline.receive(blue_client, blue, count=7, batch_size=1)
        mark = blue.done
        seek(pipeline, positions.begins[0][0], RED)
        red.resume(0, 0)
        pipeline.receive(red_client, red)
        # A transaction of which it acked the BEGIN comes again from there.
        blue.resume(mark, mark)
        pipeline.receive(blue_client, blue)
        assert blue.done == 10
        seek(pipeline, positions.begins[1][0], BLUE)
        positions.write(2)
        pipeline.receive(red_client, red)
        blue.resume(5, 5)
        pipeline.receive(blue_client, blue)


def test_positions_shown(on_mysql, capsys):
    """The position and the lag of each client are shown."""
    pipeline, positions, checker = on_mysql
    positions.write(2)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
        pipeline.wait_for_status(lambda status: status["position"])
        found = shown(pipeline, capsys)
        assert found["running"] is True
        (one,) = found["clients"]
        assert one["client"] == RED
        assert one["behind"]["transactions"] == 0
        assert found["parsed"]["behind"]["transactions"] == 0
        assert "up to date" in text_of(pipeline, capsys)
        positions.write(3)
        message = next(pipeline.messages(client))
        (one,) = shown(pipeline, capsys)["clients"]
        assert one["behind"]["transactions"] == 3
        assert one["behind"]["bytes"] > 100
        assert one["open_batches"] == 1
        checker.take(message.entries)
        client.ack(message.id)
        if not checker.has(5):
            pipeline.receive(client, checker)
        pipeline.settle(client)
    pipeline.stop()
    positions.write(2)
    found = shown(pipeline, capsys)
    assert found["running"] is False
    (one,) = found["clients"]
    assert one["behind"]["transactions"] == 2
    assert "2 transactions" in text_of(pipeline, capsys)


def test_stopped_with_files(on_mysql):
    """Of a stopped server the stored cursors are moved, which the audit has."""
    pipeline, positions, checker = on_mysql
    with (pipeline.conf / "canal.properties").open("a") as main_file:
        main_file.write("canal.audit.file = audit.jsonl\n")
    positions.write(4)
    positions.write(4)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    pipeline.stop()
    seek(pipeline, positions.begins[1][0])
    checker.resume(4, 4)
    pipeline.start()
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    pipeline.stop()
    seek(pipeline, "latest")
    lines = (pipeline.conf / "audit.jsonl").read_text().splitlines()
    moves = [each for each in map(json.loads, lines) if each["event"] == "seek"]
    assert [each["address"] for each in moves] == ["command"] * 2
    assert moves[0]["to"][0].endswith(f"/{positions.begins[1][0]}")
    assert {each["account"] for each in moves} == {own_account()}
    pipeline.start()
    positions.write(1)
    checker.resume(8, 8)
    with pipeline.client() as client:
        pipeline.receive(client, checker)


def test_a_position_inside_of_a_transaction(on_mysql, capsys):
    """It is reported, and the position before the transaction is used."""
    pipeline, positions, checker = on_mysql
    positions.write(2)
    positions.write(1)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
        file, _, offset = positions.begins[1][0].partition(":")
        seek(pipeline, f"{file}:{int(offset) + 100}")
        assert (
            "is inside a transaction: using the end of the previous"
            in capsys.readouterr().out
        )
        checker.resume(2, 2)
        pipeline.receive(client, checker)


def test_by_time_and_set(make_pipeline, source_server, database, rng, capsys):
    """In GTID mode clients are moved by sets and by time, and go on by the set."""
    pipeline = make_pipeline(source_server, database, {"canal.instance.gtidon": "true"})
    pipeline.start()
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    writer.write(3)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
        gtids = shown(pipeline, capsys)["clients"][0]["gtid"]
        writer.write(3)
        pipeline.receive(client, checker)
        seek(pipeline, gtids)
        checker.resume(3, 3)
        pipeline.receive(client, checker)
        file, offset = source_server.binlog_position()
        writer.write(2)
        pipeline.receive(client, checker)
        seek(pipeline, f"{file}:{offset}")
        checker.resume(6, 6)
        pipeline.receive(client, checker)
        when = shown(pipeline, capsys)["clients"][0]["time"]
        seek(pipeline, when)
        checker.resume(0, 7)
        pipeline.receive(client, checker)
    assert checker.done == 8


@pytest.mark.parametrize("running", [True, False])
def test_in_zookeeper(  # noqa: PLR0917  # fixtures
    make_pipeline, mysql_server, database, zookeeper_root, rng, running, capsys
):
    """Cursors in nodes are shown and moved like those in files."""
    pipeline = make_pipeline(mysql_server, database)
    pipeline.configure({"canal.zkServers": zookeeper_root}, wiring=ZOOKEEPER)
    pipeline.start()
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    writer.write(2)
    file, offset = mysql_server.binlog_position()
    writer.write(2)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    if not running:
        pipeline.stop()
    assert shown(pipeline, capsys)["clients"][0]["behind"]["transactions"] == 0
    seek(pipeline, f"{file}:{offset}")
    if not running:
        pipeline.start()
    checker.resume(2, 2)
    with pipeline.client() as client:
        pipeline.receive(client, checker)


def test_under_load(pipeline, ledger, rng):
    """Moved to and fro while much is written, clients get what they are owed, once.

    One is moved and checked after each move; another one is never moved: what it
    acked never comes again, whatever it misses is an error.
    """
    positions, red = ledger
    blue = pipeline.checker(positions.writer)
    end = threading.Event()
    with Load(positions), ExitStack() as stack:
        follower = Follower(pipeline, blue, end)
        stack.callback(follower.join)
        stack.callback(end.set)
        with pipeline.client(RED) as client:
            for _ in range(4):
                pipeline.receive_some(client, red, 8, batch_size=rng.randint(1, 200))
                offset, number = rng.choice(list(positions.begins))
                print(f"to {offset}, transaction {number}, from {red.done}")
                seek(pipeline, offset, RED)
                red.resume(number, number)
            pipeline.receive_some(client, red, 4)
    positions.write(1)  # else all may have come, and nothing more would
    with pipeline.client(RED) as client, pipeline.client(BLUE) as other:
        # A message that was fetched amid a transaction was acked.
        pipeline.receive(client, red)
        follower.resume()
        pipeline.receive(other, blue)
    print(f"{blue.done} transactions, {follower.refused} refusals of the follower")
    assert red.done == blue.done == len(positions.transactions)


class Follower:
    """A client that receives all the time, and rolls back when an ack is refused."""

    def __init__(self, pipeline, checker, end):
        self.refused = 0
        self._pipeline = pipeline
        self._checker = checker
        self._end = end
        self._error = None
        self._acked = checker.mark()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def resume(self):
        """Have the checker expect what is not acked, maybe from its BEGIN on."""
        self._checker.rewind(self._acked)
        self._checker.resume(self._acked.done, self._acked.done, amid=True)

    def join(self):
        """Wait for its end; raises what went wrong."""
        self._thread.join(3 * UNIT_S)
        assert not self._thread.is_alive()
        if self._error:
            raise self._error

    def _run(self):
        try:
            while not self._end.is_set():
                try:
                    self._follow()
                except ClientError as error:
                    assert "is not exist" in str(error), error  # noqa: PT017
                    self.refused += 1
                    self.resume()
        except Exception as error:  # noqa: BLE001  # raised by `join`
            self._error = error

    def _follow(self):
        with self._pipeline.client(BLUE) as client:
            while not self._end.is_set():
                message = client.get(200, 0.2)
                # Before its entries are checked: this reports the ack before.
                self._acked = self._checker.mark()
                if message:
                    if self._acked.open:  # a move unseen since then may begin it again
                        self.resume()
                    self._checker.take(message.entries)
                    client.ack(message.id)
            self._pipeline.settle(client)
            self._acked = self._checker.mark()
