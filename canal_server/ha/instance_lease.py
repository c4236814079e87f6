"""The lease on a destination that servers of a cluster share through ZooKeeper.

The server that owns the node `running` may run the destination, as with Java servers.
The node is ephemeral: it ends with its owner's session. Servers of both kinds may
compete for it. `position.offline` creates it too, while a command moves the cursors of
a stopped server.

What can go wrong, and what keeps two servers from running a destination at a time:

* The session ends while this server does not know it: the process was paused, or the
  connection is cut. Once the proof that the session lives is too old (`membership`),
  nothing is served, by a comparison of clocks for each request, and the instance stops.
* The instance's thread writes a cursor late. ZooKeeper itself checks each write against
  a node of this session (`lease-…`), so that it fails once the session has ended.
* A person deletes or changes `running`. The watch reports it, and the instance stops
  before anything else is done. Other servers wait for `takeover_delay_s` before they
  claim a destination that was not theirs, and so does this one: after a Java server
  always, after one of this kind only as long as its `lease-…` exists. That node is
  deleted when its instance has stopped, or with its session, by which time the instance
  has stopped, too. A Java server has no such node.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from canal_server.errors import (
    NodeExists,
    NodeMissing,
    VersionConflict,
    ZooKeeperError,
    ZooKeeperUnavailable,
)
from canal_server.ha.membership import now_ms
from canal_server.messages import cluster_messages
from canal_server.model import znodes
from canal_server.model.lease_problem import LeaseProblem
from canal_server.model.running import Running, decode, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.doors.zookeeper import Node
    from canal_server.ha.membership import Membership
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

ASK_AGAIN_S: Final = 1.0  # after ZooKeeper did not answer, or an incomplete node


class ZooKeeperLease:
    """A `ports.Lease` on one destination."""

    shared = True

    def __init__(
        self,
        destination: str,
        membership: Membership,
        address: Callable[[], str],
        *,
        takeover_delay_s: float,
    ) -> None:
        """`address` is called when the lease is opened."""
        self.destination = destination
        self._membership = membership
        self._zookeeper = membership.zookeeper
        self._find_address = address
        self._takeover_delay_s = takeover_delay_s
        self._path = znodes.running_path(destination)
        self._address = ""
        self._owner: str | None = None
        self._changed: Callable[[], None] = lambda: None
        self._session: int | None = None  # in which it is held
        self._lost = False  # lost, but not yet released
        self._may_be_made = False  # our node may exist, whatever ZooKeeper answered
        self._woken = threading.Event()
        self._not_before_s = 0.0  # on the clock of the membership
        self._asked_for = False  # an operator requested another server for it
        self._other_had_it = False  # the last known owner is not this server
        self._its_fence = ""  # the node `lease-…` of that owner; empty: it has none
        self._watched = False  # changes of the node are reported
        self._logged = ""  # the last message, to log it only once
        self._refused: LeaseProblem | None = None  # what ZooKeeper refuses

    @property
    def owner(self) -> str | None:
        """Return the server that is known to run the destination."""
        return self._owner

    def status(self) -> dict[str, object]:
        """Return whether it is held, for how long that is certain, and the session."""
        zookeeper, is_held = self._zookeeper, self.held()
        certain_s = self._membership.certain_s(self._session) if is_held else 0.0
        problem = self.problem()
        return {
            "held": is_held,
            "certain_s": round(certain_s, 3),
            "zookeeper": {
                "servers": zookeeper.servers,
                "state": zookeeper.state.value,
                "expired": zookeeper.expired,
            },
            "error": None if problem is None else problem.text,
            "error_since_ms": None if problem is None else problem.since_ms,
        }

    def problem(self) -> LeaseProblem | None:
        """Return why ZooKeeper is of no use, None: it is."""
        since_ms = self._membership.unanswered_since_ms()
        if since_ms is None:
            return self._refused
        return LeaseProblem(
            f"{ZooKeeperUnavailable.__name__}: no answer from ZooKeeper at"
            f" {self._zookeeper.servers}: this server cannot run the destination, and"
            " does not know which server does; start ZooKeeper, or restore the network"
            " to it",
            since_ms,
        )

    def open(self, changed: Callable[[], None]) -> None:
        """Register this server, and that it may run the destination."""
        self._changed = changed
        self._address = self._find_address()
        self._zookeeper.listen(self._look)
        self._membership.open()
        self._membership.announce(
            znodes.server_path(self._address),
            znodes.candidate_path(self.destination, self._address),
        )

    def close(self) -> None:
        """Withdraw that this server may run the destination.

        This also deletes the node `running`, if a stop was requested before its
        creation was known, or if it could not be released.
        """
        if self._may_be_made:
            self._give_back(self._zookeeper.session)
        self._membership.withdraw(
            znodes.candidate_path(self.destination, self._address)
        )
        self._zookeeper.unlisten(self._look)
        self._membership.close()

    def wake(self) -> None:
        """Make a wait check again."""
        self._woken.set()

    def _look(self, news: object) -> None:
        """Check again: the node or the session changed."""
        del news
        self._woken.set()

    def held(self) -> bool:
        """Return whether it is certainly held."""
        session = self._session
        return (
            session is not None and not self._lost and self._membership.proven(session)
        )

    # --- acquire --------------------------------------------------------------------

    def acquire(self, stop: Stop) -> bool:
        """Wait until it is held; false when a stop is requested."""
        while not stop.requested():
            self._woken.clear()
            try:
                self._zookeeper.wait_until_connected(stop)
                wait_s = self._compete()
                self._refused = None
            except ZooKeeperUnavailable:
                wait_s = ASK_AGAIN_S
            except ZooKeeperError as error:
                if self._is_news(str(error)):
                    cluster_messages.DESTINATION_NOT_RUNNABLE.log(
                        log, self.destination, error
                    )
                since_ms = now_ms() if self._refused is None else self._refused.since_ms
                text = f"{type(error).__name__}: {error}"
                self._refused = LeaseProblem(text, since_ms)
                wait_s = ASK_AGAIN_S
            if self._session is not None:
                return True
            self._woken.wait(wait_s)
        return False

    def _compete(self) -> float | None:
        """Claim it if it is free; return how long to wait, None: for a change."""
        session = self._zookeeper.session
        node = self._zookeeper.watch(self._path, self._look)
        if session is None:
            return ASK_AGAIN_S
        if node is None:
            return self._claim(session)
        if node.owner == session:
            return self._resume(session, node)
        running = decode(node.data)
        # A node with this address is from an earlier session: claim it without delay.
        self._other_had_it = running is None or running.address != self._address
        self._its_fence = self._fence_of(node.owner) if self._other_had_it else ""
        self._note_owner(owner_of(node.data))
        self._log_once(f"is run by {self._owner}, standing by")
        # An empty node: its owner is about to write it.
        return None if running else ASK_AGAIN_S

    def _claim(self, session: int) -> float:
        """Create the node `running`, unless it is too early."""
        if self._other_had_it:
            self._other_had_it = False
            self._not_before_s = self._membership.now_s() + self._takeover_delay_s
        self._note_owner(None)
        if (
            self._its_fence
            and self._zookeeper.watch(self._its_fence, self._look) is None
        ):
            self._its_fence = ""
            self._not_before_s = self._membership.now_s()
        wait_s = self._not_before_s - self._membership.now_s()
        if wait_s > 0:
            return wait_s
        self._make_fence(session)
        self._may_be_made = True
        try:
            self._zookeeper.create(
                self._path, Running(self._address).encode(), ephemeral=True
            )
        except NodeExists:
            return 0.0  # another server was faster: read who
        return self._hold(session)

    def _fence_of(self, session: int) -> str:
        """Return the fence of a server of this kind for its session, or ""."""
        path = znodes.lease_path(self.destination, session)
        return path if self._zookeeper.read(path) is not None else ""

    def _resume(self, session: int, node: Node) -> float:
        """Use the node that this session has: an answer about it was lost."""
        running = decode(node.data)
        if running == Running(self._address) and (
            self._membership.now_s() >= self._not_before_s
        ):
            self._make_fence(session)
            return self._hold(session)
        self._delete(node)
        return 0.0

    def _hold(self, session: int) -> float:
        """Hold it, if the node belongs to this session and the session lives."""
        node = self._zookeeper.watch(self._path, self._look)
        if node is None or node.owner != session or not self._membership.prove(session):
            return 0.0
        self._session = session
        self._its_fence = ""
        self._note_owner(self._address)
        self._log_once(f"is run by this server, {self._address}")
        return 0.0

    def _make_fence(self, session: int) -> None:
        try:
            self._zookeeper.create(
                znodes.lease_path(self.destination, session), ephemeral=True
            )
        except NodeExists:
            return  # from an earlier try

    # --- hold -----------------------------------------------------------------------

    def wait_until_lost(self, stop: Stop) -> str:
        """Wait until it is lost, may be lost, or the operator orders to step down."""
        session = self._session
        assert session is not None, "it is held"
        while not stop.requested():
            self._woken.clear()
            reason = self._trouble(session)
            if reason:
                self._lost = True
                return reason
            wait_s = self._membership.certain_s(session)
            self._woken.wait(wait_s if self._watched else min(wait_s, ASK_AGAIN_S))
        return ""

    def _trouble(self, session: int) -> str:
        """Return why it must be released, empty when it may be kept."""
        if self._zookeeper.session != session:
            return "the session with ZooKeeper has ended"
        # Also after a pause of the whole process, when no proof was renewed.
        if not self._membership.proven(session) and not self._membership.prove(session):
            silence_s = self._membership.silence_s()
            return f"no contact with ZooKeeper for {silence_s:.1f} s"
        return self._changed_by_others(session)

    def _changed_by_others(self, session: int) -> str:
        """Return how others changed the node, empty when it is unchanged."""
        self._watched = False
        try:
            node = self._zookeeper.watch(self._path, self._look)
        except ZooKeeperError:
            return ""  # while the session certainly lives
        self._watched = True
        if node is None:
            return f"{self._path} was deleted"
        running = decode(node.data)
        if node.owner != session:
            self._other_had_it = True
            self._its_fence = ""  # found when this server competes for it again
            self._note_owner(owner_of(node.data))
            return f"{self._owner} runs it"
        if running == Running(self._address):
            return ""
        # The node stays ours until it is released: no other server can run it
        # meanwhile.
        self._asked_for = True
        return f"{self._path} was changed to request it"

    # --- release --------------------------------------------------------------------

    def release(self) -> None:
        """Delete the node if it is still ours."""
        session, self._session = self._session, None
        self._lost = False
        self._logged = ""
        self._note_owner(None)
        if session is None or self._zookeeper.session != session:
            self._may_be_made = False
            return  # the node ended with the session
        if self._asked_for:
            # Others wait for one delay: they come first.
            self._not_before_s = self._membership.now_s() + 2 * self._takeover_delay_s
            self._asked_for = False
        self._give_back(session)

    def _give_back(self, session: int | None) -> None:
        if session is None:
            return
        try:
            node = self._zookeeper.read(self._path)
            if node is not None and node.owner == session:
                self._delete(node)
            self._zookeeper.delete(znodes.lease_path(self.destination, session))
            self._may_be_made = False
        except ZooKeeperError as error:
            cluster_messages.ZOOKEEPER_NODE_LEFT.log(log, error)

    def _delete(self, node: Node) -> None:
        try:
            self._zookeeper.delete_version(self._path, node.version)
        except (NodeMissing, VersionConflict):
            log.debug("%s changed meanwhile", self._path)

    # --- log ------------------------------------------------------------------------

    def _note_owner(self, owner: str | None) -> None:
        if owner != self._owner:
            self._owner = owner
            self._changed()

    def _log_once(self, what: str) -> None:
        if self._is_news(what):
            log.info("destination %s %s", self.destination, what)

    def _is_news(self, what: str) -> bool:
        is_news = what != self._logged
        self._logged = what
        return is_news
