"""This server in a cluster: its nodes, and the proof that its session lives.

A session ends when the leader of ZooKeeper has received nothing from it for its
time-out. A client cannot know when that happens, but only until when it cannot happen:
a while after the client *sent* a request that the leader answered. So this is the clock
of all leases:

::

    sent          answered                                    until           ended
     |---------------|-------------------------------------------|--------------|
     |<------------- TRUSTED of the session's time-out --------->|<-- margin -->|

After `until` requests are refused at once. The margin is for an instance to stop, for
clocks of different speeds, and for the half tick by which a leader learns late from its
followers which sessions are alive.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.errors import NodeExists, NodeMissing, VersionConflict, ZooKeeperError
from canal_server.messages import cluster_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.doors.zookeeper import SessionState, ZooKeeper
    from canal_server.ha.predecessor import Predecessor

log = logging.getLogger(__name__)

TRUSTED: Final = 2 / 3  # of the session's time-out
PROOFS: Final = 10  # during the session's time-out
PROOF_EVERY_MAX_S: Final = 5.0
TRIES: Final = 4  # to renew it, during the session's time-out
TRY_MAX_S: Final = 5.0
JOIN_S: Final = 2.0  # for a request in progress to end
START_MAX_S: Final = 5.0  # for the first answer, before its lack is an error


def boot_clock_s() -> float:
    """Return a time that also advances while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def now_ms() -> int:
    """Return the time since 1970, for people."""
    return round(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof that a session lives, and until when that is certain."""

    session: int
    sent_s: float
    until_s: float
    sent_ms: int  # since 1970, for people


class Membership:
    """Maintains ephemeral nodes, and proves that the session lives.

    All leases of one ZooKeeper session share it: a stage whose `open` and `close` each
    of them calls once. A thread renews the proof and creates the nodes again in each
    new session.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        *,
        predecessor: Predecessor | None = None,
        clock_s: Callable[[], float] = boot_clock_s,
    ) -> None:
        """`predecessor` remembers sessions for the next server; None: nothing does."""
        self.zookeeper = zookeeper
        self._predecessor = predecessor
        self._followed = False  # an earlier server's session was ended
        self._clock_s = clock_s
        self._proof: Proof | None = None  # replaced, not changed: read without a lock
        # Since when there is no answer, in ms since 1970, None: there is one, or the
        # session is certain in spite of it. Found by trying: a clock alone would also
        # count a pause of this process.
        self._unanswered_since_ms: int | None = None
        self._opened_s, self._opened_ms = 0.0, 0
        self._lock = threading.Lock()  # guards what follows
        self._users = 0
        self._paths: dict[str, int] = {}  # of nodes, and the session that owns each
        self._stopping = False
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        zookeeper.listen(self._session_changed)

    def open(self) -> None:
        """Start to connect and to prove; returns at once."""
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            self.zookeeper.start()
            self._opened_s, self._opened_ms = self._clock_s(), now_ms()
            self._unanswered_since_ms = None
            self._stopping = False
            self._thread = threading.Thread(
                target=self._keep, name="zookeeper membership", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """End the session when no other lease uses it."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            self._stopping = True
            thread = self._thread
        self._woken.set()
        assert thread is not None, "close is called after open"
        thread.join(JOIN_S)
        self.zookeeper.close()
        if self._predecessor is not None:
            self._predecessor.forget()

    def now_s(self) -> float:
        """Return the time on the clock of all leases."""
        return self._clock_s()

    # --- the proof ------------------------------------------------------------------

    def proven(self, session: int | None) -> bool:
        """Return whether the session certainly lives; cheap."""
        proof = self._proof
        return (
            proof is not None
            and proof.session == session
            # ZooKeeper may have reported its end earlier.
            and self.zookeeper.session == session
            and self._clock_s() < proof.until_s
        )

    def prove(self, session: int | None) -> bool:
        """Try to prove it now; waits for a short time only."""
        try:
            self._prove()
        except ZooKeeperError:
            return False
        return self.proven(session)

    def certain_s(self, session: int | None) -> float:
        """Return for how long the session certainly lives."""
        proof = self._proof
        if proof is None or proof.session != session:
            return 0.0
        return max(0.0, proof.until_s - self._clock_s())

    def silence_s(self) -> float:
        """Return how long ago the last answered request was sent."""
        proof = self._proof
        return 0.0 if proof is None else self._clock_s() - proof.sent_s

    def unanswered_since_ms(self) -> int | None:
        """Return since when ZooKeeper has not answered, None: it does.

        It is None, too, for as long as the session lives without an answer, and in the
        first seconds after the start.
        """
        return self._unanswered_since_ms

    def _note_no_answer(self, began_s: float) -> None:
        """Note a try that failed, if nothing was certain any more when it began.

        One that began earlier may have failed because this process was paused.
        """
        proof = self._proof
        if proof is not None and proof.sent_s >= self._opened_s:
            until_s, since_ms = proof.until_s, proof.sent_ms
        else:
            patience_s = min(TRUSTED * self.zookeeper.session_timeout_s, START_MAX_S)
            until_s, since_ms = self._opened_s + patience_s, self._opened_ms
        if began_s >= until_s:
            self._unanswered_since_ms = since_ms

    def _prove(self) -> None:
        timeout_s = self.zookeeper.session_timeout_s
        sent_s, sent_ms = self._clock_s(), now_ms()
        session = self.zookeeper.touch(min(timeout_s / TRIES, TRY_MAX_S))
        # The time-out that was granted to the session that answered.
        timeout_s = self.zookeeper.session_timeout_s
        self._proof = Proof(session, sent_s, sent_s + TRUSTED * timeout_s, sent_ms)
        self._unanswered_since_ms = None

    # --- nodes ----------------------------------------------------------------------

    def announce(self, *paths: str) -> None:
        """Maintain ephemeral nodes, in this session and all later ones."""
        with self._lock:
            for path in paths:
                self._paths.setdefault(path, 0)
        self._woken.set()

    def withdraw(self, path: str) -> None:
        """Delete a node and stop maintaining it."""
        with self._lock:
            session = self._paths.pop(path, 0)
        if session and session == self.zookeeper.session:
            try:
                self.zookeeper.delete(path)
            except ZooKeeperError as error:
                cluster_messages.ZOOKEEPER_NODE_LEFT.log(log, error)

    def _make_nodes(self) -> None:
        """Create the nodes that this session does not own yet."""
        session = self.zookeeper.session
        if session is None:
            return
        with self._lock:
            missing = [path for path, has in self._paths.items() if has != session]
        for path in missing:
            self._make_node(path, session)
            with self._lock:
                announced = path in self._paths
                if announced:
                    self._paths[path] = session
            if not announced:  # it was withdrawn before it was created
                self.zookeeper.delete(path)

    def _make_node(self, path: str, session: int) -> None:
        try:
            self.zookeeper.create(path, ephemeral=True)
        except NodeExists:
            # A node of an earlier session would be deleted when that session ends.
            node = self.zookeeper.read(path)
            if node is not None and node.owner == session:
                return
            if node is not None:
                try:
                    self.zookeeper.delete_version(path, node.version)
                except (NodeMissing, VersionConflict):
                    log.debug("%s was deleted meanwhile", path)
            self.zookeeper.create(path, ephemeral=True)

    def _follow(self) -> None:
        """End an earlier server's session, once ZooKeeper answers; remember ours."""
        if self._predecessor is None:
            return
        if not self._followed:
            self._followed = True
            self._predecessor.end()
        self._predecessor.remember(self.zookeeper)

    # --- the thread -----------------------------------------------------------------

    def _session_changed(self, state: SessionState) -> None:
        """Check at once; called by a thread that must not wait."""
        del state
        self._woken.set()

    def _keep(self) -> None:
        while not self._stopping:
            self._woken.clear()
            began_s = self._clock_s()
            try:
                self._prove()
                self._follow()
                self._make_nodes()
            except ZooKeeperError as error:
                # The leases log and show the consequences.
                log.debug("%s", error)
                self._note_no_answer(began_s)
            except Exception:  # noqa: BLE001
                # A bug must be visible, and must not stop this thread for all leases.
                cluster_messages.SESSION_CHECK_FAILED.log(log, exc_info=True)
            every_s = self.zookeeper.session_timeout_s / PROOFS
            self._woken.wait(min(every_s, PROOF_EVERY_MAX_S))
