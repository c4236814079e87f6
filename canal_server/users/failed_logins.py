"""Log-ins over HTTP, and what slows down who tries passwords."""

from __future__ import annotations

import base64
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from canal_server.runtime.admission import group_of

KEPT_MAX: Final = 10_000  # names of addresses with failures, and with right passwords
NAME_MAX: Final = 64  # characters
WAITING_MAX: Final = 4  # log-ins of one name from one address, at a time
WAITING_OF_ADDRESS_MAX: Final = 16
EXCESS_S: Final = 2.0  # between failures that are not too many
EXCESS_TOLERATED: Final = (
    30  # failures beyond that, with which a known password is at once
)
EXCESS_MAX: Final = 60  # that are counted
FORGET_S: Final = 60.0  # after the last failed log-in
DELAY_MIN_S: Final = 0.25
DELAY_MAX_S: Final = 5.0


def basic_login(authorization: str) -> tuple[str, str]:
    """Return the name and the password of HTTP's basic authentication, or empty."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        sent = base64.b64decode(encoded, validate=True).decode()
    except ValueError:  # not Base64, or not UTF-8
        return "", ""
    user, _, password = sent.partition(":")
    return user, password


@dataclass(slots=True)
class _Failures:
    """The wrong passwords for one name from one address."""

    in_row: int = 0  # without a pause of FORGET_S
    last_s: float = 0.0
    excess: float = 0.0  # those beyond one in EXCESS_S
    excess_s: float = 0.0  # the time at which it was that


class FailedLogins:
    """How long the answer to a log-in waits, by address and name; thread-safe.

    The delay grows with each failure in a row. While there are any, the right password
    waits as long as a wrong one, and only a few log-ins wait at a time. Otherwise, the
    right one could be recognized by its speed, and one could try many at the same time,
    or hang up early and try the next one.

    A password that was right before, from the same address, does not wait, so that
    nobody is delayed by a program with an old password: unless there are so many
    failures that somebody seems to guess.
    """

    def __init__(self, delay_max_s: float = DELAY_MAX_S) -> None:
        self._delay_max_s = delay_max_s
        self._lock = threading.Lock()
        # The oldest first.
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()
        self._proven: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        # By address: until when log-ins wait, and their names. They count until then,
        # even if a client has disconnected.
        self._waiting: OrderedDict[str, list[tuple[float, str]]] = OrderedDict()

    def begin(self, address: str, name: str, proof: str, now_s: float) -> float | None:
        """Count a log-in; returns how long to delay its answer, whatever that is.

        `proof` identifies the password that was right; empty: it was wrong. None: too
        many wait, so that neither may be answered. Who has waited calls `has_waited`.
        """
        host, name = group_of(address), name[:NAME_MAX]
        key = host, name
        with self._lock:
            failures = self._failures_of(key, now_s)
            if proof and self._is_at_once((*key, proof), failures):
                return 0.0
            if failures is None:
                failures = self._failures[key] = _Failures(excess_s=now_s)
                _limit(self._failures)
            # Those with the right password count as well: the delay of the next one
            # would show which it was.
            failures.in_row += 1
            failures.excess = min(failures.excess + 1, EXCESS_MAX)
            failures.last_s = now_s
            self._failures.move_to_end(key)
            waiting = [each for each in self._waiting.pop(host, ()) if each[0] > now_s]
            self._waiting[host] = waiting
            _limit(self._waiting)
            of_name = sum(each == name for _, each in waiting)
            if of_name >= WAITING_MAX or len(waiting) >= WAITING_OF_ADDRESS_MAX:
                return None
            doubled = DELAY_MIN_S * 2.0 ** min(failures.in_row - 1, 16)
            delay_s = min(self._delay_max_s, doubled)
            waiting.append((now_s + delay_s, name))
            return delay_s

    def has_waited(self, address: str, name: str, proof: str) -> None:
        """Note that a log-in is answered after its delay, and what was proven."""
        if not proof:
            return
        key = group_of(address), name[:NAME_MAX]
        with self._lock:
            self._failures.pop(key, None)
            self._note_proof((*key, proof))

    def _failures_of(self, key: tuple[str, str], now_s: float) -> _Failures | None:
        found = self._failures.get(key)
        if found is None:
            return None
        if now_s - found.last_s > FORGET_S:
            del self._failures[key]
            return None
        found.excess = max(0.0, found.excess - (now_s - found.excess_s) / EXCESS_S)
        found.excess_s = now_s
        return found

    def _is_at_once(
        self, proof: tuple[str, str, str], failures: _Failures | None
    ) -> bool:
        """Return whether a right password is answered without a delay."""
        if failures is None:
            self._note_proof(proof)
            return True
        return proof in self._proven and failures.excess <= EXCESS_TOLERATED

    def _note_proof(self, proof: tuple[str, str, str]) -> None:
        self._proven[proof] = None
        self._proven.move_to_end(proof)
        _limit(self._proven)


def _limit(table: OrderedDict[Any, Any]) -> None:
    if len(table) > KEPT_MAX:
        table.popitem(last=False)
