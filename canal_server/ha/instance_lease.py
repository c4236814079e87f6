"""The lease on a destination that servers of a cluster share by ZooKeeper.

Who has the node `running` may run the destination, as in the original: it is ephemeral,
thus ends with the session of its maker. Servers of both kinds may compete for it.

What can go wrong, and what keeps two from running a destination at a time:

* The session ends while nobody here knows it: the process was paused, the link is cut.
  Nothing is served once the proof that the session lives is too old (`member`), by a
  comparison of clocks for each request, and the instance ends then.
* The instance's thread writes a cursor late. Each write is checked by ZooKeeper itself
  against a node of this session (`lease-…`), so it fails once the session has ended.
* `running` is deleted or changed by a person. The watch tells; the instance ends before
  anything else is done. Others wait for `takeover_delay_s` before they take a place
  that was not theirs, and so do we: after a Java server always, after one of ours only
  as long as its `lease-…` is there. That goes when its instance has ended, or with its
  session, which it has given up by then; a Java server has none.
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
from canal_server.model import znodes
from canal_server.model.running import Running, decode, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.doors.zookeeper import Node
    from canal_server.ha.membership import Member
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

ASK_AGAIN_S: Final = 1.0  # after ZooKeeper did not answer, or a node that says nothing


class ZooKeeperLease:
    """A `ports.Lease` on one destination."""

    shared = True

    def __init__(
        self,
        destination: str,
        member: Member,
        address: Callable[[], str],
        *,
        takeover_delay_s: float,
    ) -> None:
        """`address` is asked when the lease is opened."""
        self.destination = destination
        self._member = member
        self._zookeeper = member.zookeeper
        self._find_address = address
        self._takeover_delay_s = takeover_delay_s
        self._path = znodes.running_path(destination)
        self._address = ""
        self._owner: str | None = None
        self._changed: Callable[[], None] = lambda: None
        self._session: int | None = None  # in which it is held
        self._lost = False  # while there is something to release
        self._may_be_made = False  # the node, by us, whatever was answered
        self._woken = threading.Event()
        self._not_before_s = 0.0  # on the clock of the member
        self._asked_for = False  # a person wants another server to have it
        self._other_had_it = False  # the owner that was seen last is not us
        self._its_fence = ""  # the node `lease-…` of that owner; empty: of no such
        self._watched = False  # changes of the node are told
        self._told = ""  # the last thing in the log, to tell it once

    @property
    def owner(self) -> str | None:
        """Return who is known to run the destination."""
        return self._owner

    def open(self, changed: Callable[[], None]) -> None:
        """Announce this server, and that it may run the destination."""
        self._changed = changed
        self._address = self._find_address()
        self._zookeeper.listen(self._look)
        self._member.open()
        self._member.announce(
            znodes.server_path(self._address),
            znodes.candidate_path(self.destination, self._address),
        )

    def close(self) -> None:
        """Take back that this server may run the destination.

        And the node, if a stop came before its maker knew that it was there, or when it
        could not be given back.
        """
        if self._may_be_made:
            self._give_back(self._zookeeper.session)
        self._member.withdraw(znodes.candidate_path(self.destination, self._address))
        self._zookeeper.unlisten(self._look)
        self._member.close()

    def wake(self) -> None:
        """Have a wait look again."""
        self._woken.set()

    def _look(self, news: object) -> None:
        """Look again: the node or the session changed."""
        del news
        self._woken.set()

    def held(self) -> bool:
        """Tell whether it is held for certain."""
        session = self._session
        return session is not None and not self._lost and self._member.proven(session)

    # --- to get it ------------------------------------------------------------------

    def acquire(self, stop: Stop) -> bool:
        """Wait until it is held; false when a stop is asked for."""
        while not stop.requested():
            self._woken.clear()
            try:
                self._zookeeper.wait_until_connected(stop)
                wait_s = self._compete()
            except ZooKeeperUnavailable:
                wait_s = ASK_AGAIN_S
            except ZooKeeperError as error:
                self._tell_once(logging.ERROR, f"cannot be run: {error}")
                wait_s = ASK_AGAIN_S
            if self._session is not None:
                return True
            self._woken.wait(wait_s)
        return False

    def _compete(self) -> float | None:
        """Take it if it is free; else return for how long to wait, None: for news."""
        session = self._zookeeper.session
        node = self._zookeeper.watch(self._path, self._look)
        if session is None:
            return ASK_AGAIN_S
        if node is None:
            return self._claim(session)
        if node.owner == session:
            return self._resume(session, node)
        running = decode(node.data)
        # One of this address is of a session before: what we had, we take at once.
        self._other_had_it = running is None or running.address != self._address
        self._its_fence = self._fence_of(node.owner) if self._other_had_it else ""
        self._note_owner(owner_of(node.data))
        self._tell_once(logging.INFO, f"is run by {self._owner}, waiting for its end")
        # A node that does not say who made it: its maker is about to write it.
        return None if running else ASK_AGAIN_S

    def _claim(self, session: int) -> float:
        """Make the node `running`, if its time has come."""
        if self._other_had_it:
            self._other_had_it = False
            self._not_before_s = self._member.now_s() + self._takeover_delay_s
        self._note_owner(None)
        if (
            self._its_fence
            and self._zookeeper.watch(self._its_fence, self._look) is None
        ):
            self._its_fence = ""
            self._not_before_s = self._member.now_s()
        wait_s = self._not_before_s - self._member.now_s()
        if wait_s > 0:
            return wait_s
        self._make_fence(session)
        self._may_be_made = True
        try:
            self._zookeeper.create(
                self._path, Running(self._address).encode(), ephemeral=True
            )
        except NodeExists:
            return 0.0  # somebody was faster: look who
        return self._take(session)

    def _fence_of(self, session: int) -> str:
        """Return the fence that a server of ours has for its session, empty if none."""
        path = znodes.lease_path(self.destination, session)
        return path if self._zookeeper.read(path) is not None else ""

    def _resume(self, session: int, node: Node) -> float:
        """Take the node that this session has: its answer, or its end, got lost."""
        running = decode(node.data)
        if running == Running(self._address) and (
            self._member.now_s() >= self._not_before_s
        ):
            self._make_fence(session)
            return self._take(session)
        self._delete(node)
        return 0.0

    def _take(self, session: int) -> float:
        """Hold it, if the node is that of this session and the session lives."""
        node = self._zookeeper.watch(self._path, self._look)
        if node is None or node.owner != session or not self._member.prove(session):
            return 0.0
        self._session = session
        self._its_fence = ""
        self._note_owner(self._address)
        self._tell_once(logging.INFO, f"is run by this server, {self._address}")
        return 0.0

    def _make_fence(self, session: int) -> None:
        try:
            self._zookeeper.create(
                znodes.lease_path(self.destination, session), ephemeral=True
            )
        except NodeExists:
            return  # of a try before

    # --- to keep it -----------------------------------------------------------------

    def wait_until_lost(self, stop: Stop) -> str:
        """Wait until it is lost, may be lost, or is to be given up."""
        session = self._session
        assert session is not None, "it is held"
        while not stop.requested():
            self._woken.clear()
            reason = self._trouble(session)
            if reason:
                self._lost = True
                return reason
            wait_s = self._member.certain_s(session)
            self._woken.wait(wait_s if self._watched else min(wait_s, ASK_AGAIN_S))
        return ""

    def _trouble(self, session: int) -> str:
        """Return why it must not be kept, empty when it may."""
        if self._zookeeper.session != session:
            return "the session with ZooKeeper has ended"
        # Also after a pause of the whole process, in which nothing was proven.
        if not self._member.proven(session) and not self._member.prove(session):
            silence_s = self._member.silence_s()
            return f"no contact with ZooKeeper for {silence_s:.1f} s"
        return self._changed_by_others(session)

    def _changed_by_others(self, session: int) -> str:
        """Return what somebody did to the node, empty when it is as it was made."""
        self._watched = False
        try:
            node = self._zookeeper.watch(self._path, self._look)
        except ZooKeeperError:
            return ""  # as long as it is certain that the session lives
        self._watched = True
        if node is None:
            return f"{self._path} was deleted"
        running = decode(node.data)
        if node.owner != session:
            self._other_had_it = True
            self._its_fence = ""  # of whatever kind it is: seen when it is competed for
            self._note_owner(owner_of(node.data))
            return f"{self._owner} runs it"
        if running == Running(self._address):
            return ""
        # It stays ours until it is released: nobody can run it meanwhile.
        self._asked_for = True
        return f"{self._path} was changed to ask for it"

    # --- to give it back ------------------------------------------------------------

    def release(self) -> None:
        """Delete the node if it is still ours."""
        session, self._session = self._session, None
        self._lost = False
        self._told = ""
        self._note_owner(None)
        if session is None or self._zookeeper.session != session:
            self._may_be_made = False
            return  # it went with the session
        if self._asked_for:
            # Others wait for one delay: they come first.
            self._not_before_s = self._member.now_s() + 2 * self._takeover_delay_s
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
            log.warning("%s, it goes with the session", error)

    def _delete(self, node: Node) -> None:
        try:
            self._zookeeper.delete_version(self._path, node.version)
        except (NodeMissing, VersionConflict):
            log.debug("%s changed meanwhile", self._path)

    # --- to tell it -----------------------------------------------------------------

    def _note_owner(self, owner: str | None) -> None:
        if owner != self._owner:
            self._owner = owner
            self._changed()

    def _tell_once(self, level: int, what: str) -> None:
        if what != self._told:
            self._told = what
            log.log(level, "destination %s %s", self.destination, what)
