"""Another server takes over: each row has the columns of its time, none is lost.

Two real servers, one the replica of the other; the pipeline reads one, then the other.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from fix_history import SCRIPT, Chronicle, Follower, chronicle_of, random_change
from fix_pipeline import POLL_S, UNIT_S
from fix_random import longer

from canal_server.client import EntryType

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from fix_pipeline import Pipeline
    from fix_replicas import Replicas
    from servers import PrivateServer

READS = "reads .* from"
FOLLOWED = "continuing the table history at .* of server"
GTID_MODE = {"canal.instance.gtidon": "true"}
TABLES = (
    ("CREATE TABLE t (a INT, b INT)", ("t",)),
    ("CREATE TABLE s (c INT, d INT)", ("s", "t")),
)
SWAP = "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"
EXCHANGE = "RENAME TABLE t TO x, s TO t, x TO s"


class Scene:
    """Two servers, what is written to them, and a pipeline that reads one of them."""

    def __init__(
        self,
        replicas: Replicas,
        chronicle: Chronicle,
        pipeline: Pipeline,
    ) -> None:
        self.replicas = replicas
        self.chronicle = chronicle
        self.pipeline = pipeline
        self.reads = replicas.source
        self.follower = Follower(chronicle)

    def run(self, *script: tuple[str, tuple[str, ...]]) -> None:
        """Run statements, each with rows after it."""
        for statement, tables in script:
            self.chronicle.run(statement)
            self.chronicle.write(*tables)

    def receive(self, stop: int | None = None) -> None:
        """Receive and ack up to a row, by default all."""
        with self.pipeline.client() as client:
            self.follower.receive(self.pipeline, client, stop)
        # A server that was killed before it wrote anything down knows of no client: at
        # another address, where no position is configured, it begins at the end.
        self.wait_for_stored('"journalName"')

    def receive_statement(self, statement: str, *, ack: bool) -> None:
        """Receive up to a statement; ack all or nothing of it."""
        with self.pipeline.client() as client:
            for message in self.pipeline.messages(client):
                self.follower.take(message.entries)
                if ack:
                    client.ack(message.id)
                if any(
                    entry.row_change().sql == statement
                    for entry in message.entries
                    if entry.entry_type == EntryType.ROWDATA
                ):
                    break
            self.pipeline.settle(client)
        if ack:
            self.wait_for_cursor()

    def wait_for_cursor(self) -> None:
        """Wait until it is on disk that all of the server that is read was acked."""
        self.wait_for_stored(self.replicas.executed(self.reads))

    def wait_for_stored(self, part: str) -> None:
        """Wait until a text is part of the stored cursors."""
        give_up_at = time.monotonic() + 3 * UNIT_S
        file = self.pipeline.meta_file
        # It is not there before it is first written.
        while part not in (found := file.read_text() if file.exists() else ""):
            assert time.monotonic() < give_up_at, f"{part} is not in {found}"
            time.sleep(POLL_S)

    def read_ahead(self) -> None:
        """Receive all that was written, and ack nothing."""
        with self.pipeline.client() as client:
            messages = self.pipeline.messages(client)
            while self.follower.next < len(self.chronicle.rows):
                self.follower.take(next(messages).entries)

    def read_from(self, server: PrivateServer, *, until: str = READS) -> None:
        """Point the pipeline, which does not run, at a server, and start it.

        Of tables that it knew from the other one there is no doubt.
        """
        self.pipeline.configure(
            {
                "canal.instance.master.address": f"{server.host}:{server.port}",
                # Where the first one stood at first; nothing may be read from it.
                "canal.instance.master.journal.name": None,
                "canal.instance.master.position": None,
            }
        )
        self.reads = server
        self.follower.resume()
        self.pipeline.start()
        self.pipeline.process.wait_for_log(until)

    def take_over(self) -> None:
        """Make the replica the source of all that is written, and of the pipeline."""
        self.replicas.take_over()
        self.chronicle.go_to(self.replicas.source)
        self.read_from(self.replicas.source)


@pytest.fixture
def make_scene(
    make_pipeline: Callable[..., Pipeline],
    replicas: Replicas,
    replicated_schema: str,
) -> Iterator[Callable[..., Scene]]:
    """Give `make(settings)`: a scene with a running pipeline."""
    with chronicle_of(replicas.source, replicated_schema) as chronicle:

        def make(settings: dict[str, object]) -> Scene:
            pipeline = make_pipeline(
                replicas.source,
                replicated_schema,
                {"canal.file.flush.period": 20, **settings},
            )
            pipeline.start()
            # Now the base is read: what is written from here on is read in the binlog.
            pipeline.process.wait_for_log(READS)
            return Scene(replicas, chronicle, pipeline)

        yield make


@pytest.fixture
def scene(make_scene: Callable[..., Scene]) -> Scene:
    """Give a scene with a running pipeline in GTID mode."""
    return make_scene(GTID_MODE)


def test_statements_while_nobody_read(scene: Scene) -> None:
    """Statements between the last read and the take-over are read from the replica."""
    scene.run(*SCRIPT[:9])
    scene.receive()
    scene.pipeline.stop()
    scene.run(*SCRIPT[9:14])
    scene.replicas.catch_up()
    scene.take_over()
    scene.pipeline.process.wait_for_log(FOLLOWED)
    scene.run(*SCRIPT[14:])
    scene.receive()


@pytest.mark.parametrize("acked", [True, False], ids=["acked", "unacked"])
def test_a_statement_was_read_last(scene: Scene, *, acked: bool) -> None:
    """What the source's last statements did is known, though all died right after."""
    scene.run(*TABLES)
    scene.receive()
    scene.chronicle.run(SWAP, EXCHANGE)
    scene.receive_statement(EXCHANGE, ack=acked)
    scene.replicas.catch_up()
    scene.pipeline.kill()
    scene.replicas.source.kill()
    scene.take_over()
    scene.pipeline.process.wait_for_log(FOLLOWED)
    scene.chronicle.write("t", "s")
    scene.run((EXCHANGE, ("s", "t")), (SWAP, ("s", "t")))
    scene.receive()


def test_back_again(scene: Scene) -> None:
    """The first server's history goes on where it ended, with the second's changes."""
    scene.run(*SCRIPT[:6])
    scene.receive()
    scene.replicas.catch_up()
    scene.pipeline.kill()
    scene.take_over()
    scene.replicas.rejoin()
    scene.run(*SCRIPT[6:10])
    scene.receive(len(scene.chronicle.rows) - 2)
    scene.pipeline.kill()
    scene.run(*SCRIPT[10:14])
    scene.replicas.catch_up()
    scene.take_over()
    scene.run(*SCRIPT[14:])
    scene.receive()


@pytest.mark.parametrize("by", ["set", "time"])
def test_outside_gtid_mode(make_scene: Callable[..., Scene], by: str) -> None:
    """By time some rows come again, each with the columns it had before.

    After the set beside the cursor the history continues as well, without a new base.
    """
    scene = make_scene(
        {
            "canal.instance.fallbackIntervalInSeconds": 30,
            "canal.instance.gtid.sets.enable": str(by == "set").lower(),
        }
    )
    # After the beginning of all files, so that the time is in the history.
    ((now_s,),) = scene.chronicle.ask("SELECT UNIX_TIMESTAMP() + 1000")
    for number, each in enumerate(SCRIPT[:12]):
        scene.chronicle.run(f"SET timestamp = {now_s + 10 * number}")
        scene.run(each)
    scene.receive()
    scene.wait_for_stored(f'"timestamp":{now_s + 110}000')
    scene.replicas.catch_up()
    scene.pipeline.kill()
    scene.take_over()
    scene.pipeline.process.wait_for_log(FOLLOWED)
    scene.chronicle.run(f"SET timestamp = {now_s + 200}")
    scene.run(*SCRIPT[12:])
    scene.receive()
    if by == "set":
        scene.pipeline.process.wait_for_log("the GTID set stored with it")
    else:
        assert scene.follower.repeated, "nothing arrived again"


@pytest.mark.parametrize("lags", [True, False], ids=["behind", "level"])
def test_an_old_cursor(scene: Scene, *, lags: bool) -> None:
    """What was read and not acked comes again, from a replica that may lag behind."""
    scene.run(*SCRIPT[:5])
    scene.receive(2)
    scene.replicas.catch_up()
    with scene.replicas.lag():
        scene.run(*SCRIPT[5:12])
        scene.read_ahead()
        scene.pipeline.kill()
        if lags:
            scene.read_from(scene.replicas.replica)
            scene.receive(4)
    scene.replicas.catch_up()
    if not lags:
        scene.read_from(scene.replicas.replica)
    scene.run(*SCRIPT[12:])
    scene.receive()


def test_another_order(scene: Scene) -> None:
    """A statement that one server had early comes again where the other one had it."""
    source, replica = scene.replicas.source, scene.replicas.replica
    scene.run(*TABLES)
    scene.receive()
    scene.pipeline.kill()
    scene.replicas.catch_up()
    scene.read_from(replica)
    with scene.replicas.mutual(), scene.replicas.lag():
        scene.chronicle.write("t", "t")
        own = [f"USE {scene.chronicle.schema}", SWAP]
        if replica.flavour == "mariadb":
            own.insert(0, "SET gtid_domain_id = 7")
        replica.execute(*own)
        scene.receive_statement(SWAP, ack=True)
        scene.pipeline.kill()
        scene.replicas.wait_for(source, scene.replicas.executed(replica))
        scene.chronicle.write("t")
        scene.read_from(source)
        scene.pipeline.process.wait_for_log("requesting them again")
        scene.receive()


def test_ahead_of_the_replica(scene: Scene) -> None:
    """What was acked before the replica had it is known when the replica gets it."""
    scene.run(*SCRIPT[:5])
    scene.replicas.catch_up()
    is_mysql = scene.replicas.flavour == "mysql"
    with scene.replicas.lag():
        scene.run(*SCRIPT[5:12])
        scene.receive()
        scene.wait_for_cursor()
        scene.pipeline.kill()
        # A MariaDB refuses who has read more than it has executed: it is waited for.
        waits = "waiting until this replica has"
        scene.read_from(scene.replicas.replica, until=READS if is_mysql else waits)
    scene.pipeline.process.wait_for_log(READS)
    scene.run(*SCRIPT[12:])
    scene.receive()


def test_a_lost_statement(scene: Scene) -> None:
    """A statement that died with its server is none of the next one's."""
    scene.run(*TABLES)
    scene.replicas.catch_up()
    with scene.replicas.lag():
        scene.receive()
        scene.chronicle.run(SWAP)
        scene.receive_statement(SWAP, ack=True)
        scene.pipeline.kill()
        scene.replicas.source.kill()
        scene.take_over()
        scene.chronicle.write("t", "s")
        scene.receive()


@pytest.mark.slow
def test_random(scene: Scene, rng: random.Random) -> None:
    """Random statements, acks, deaths and servers: each row has its columns."""
    scene.chronicle.run("CREATE TABLE first (a INT, b INT, c INT)")
    scene.chronicle.write("first")
    for number in range(longer(3)):
        for step in range(6):
            change = random_change(rng, scene.chronicle, number * 6 + step)
            print(change)
            scene.chronicle.run(change)
            scene.chronicle.write(*scene.chronicle.tables()[:4])
        scene.receive(rng.randint(scene.follower.next, len(scene.chronicle.rows)))
        if rng.random() < 0.5:
            scene.read_ahead()
        scene.replicas.catch_up()
        if rng.random() < 0.5:
            scene.pipeline.kill()
        else:
            scene.pipeline.stop()
        if rng.random() < 0.3:
            scene.replicas.source.kill()
        scene.take_over()
        scene.replicas.rejoin()
        # What was not acked may come again already.
        scene.follower.resume()
    scene.receive()
