"""Statements that a server would omit although they change what follows.

A dump by GTID set sends what the set lacks, from the first such transaction on. A
statement in the set may lie after that: another server had it earlier, or this server
does not have it yet, or never will. Rows before it have the previous columns, so it
must be seen at its position: this module computes the set that makes the server send it
again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.mysql.binlogs import current_end
from canal_server.mysql.replication import FileStart
from canal_server.source.read.gtid_sets import contains, parse, parsed, subtract

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.model.positions import EntryPosition
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.source.read.binlog_scan import Scanner
    from canal_server.source.read.ddl_scan import DdlScanner
    from canal_server.source.read.gtid_sets import Gtids

_log = logging.getLogger(__name__)


class SkipFinder:
    """Finds such statements on one server; for one session."""

    def __init__(
        self,
        control: ControlConnection,
        info: ServerInfo,
        scanner: DdlScanner,
        files: Scanner,
    ) -> None:
        self._control = control
        self._info = info
        self._scanner = scanner
        self._files = files

    def asking_again(
        self, requested: Gtids, at: EntryPosition, known: Iterable[EntryPosition]
    ) -> Gtids:
        """Return the set to ask for: `requested`, without the omitted statements.

        `at` is the position of the first event that the server sends for `requested`,
        and `known` are statements that were read from any server. Raises BinlogPurged.
        """
        before = self._files.gtids_at(
            at.journal_name or "", at.position or 4, mariadb=self._info.is_mariadb
        )
        if contains(before, requested):
            return requested
        here = self._parse(current_end(self._control, self._info).gtids)
        missing = subtract(requested, here)
        events = self._scanner.between_sets(
            FileStart(at.journal_name or "", at.position or 4),
            self._parse(str(before)),  # a copy: the reader extends it
            subtract(requested, missing),
        )
        skipped = subtract(requested, before)
        texts = {
            *(each.position.gtid for each in events),
            *(each.gtid for each in known if self._is_in(missing, each.gtid)),
        }
        statements = [
            gtid
            for gtid in (self._parse(text) for text in texts if text)
            if contains(skipped, gtid)
        ]
        if not statements:
            return requested
        found = _without(requested, statements, before)
        _log.info(
            "%d statements of the GTID set %s come after %s on this server, or are"
            " missing: requesting them again, by %s",
            len(statements),
            str(requested)[:200],
            at,
            str(found)[:200],
        )
        return found

    def _parse(self, text: str) -> Gtids:
        return parse(text, self._info)

    def _is_in(self, gtids: Gtids, text: str | None) -> bool:
        # It may be from a history that another program wrote.
        gtid = parsed(text, self._info)
        return gtid is not None and contains(gtids, gtid)


def _without(requested: Gtids, statements: list[Gtids], before: Gtids) -> Gtids:
    """Return a set without some statements.

    MariaDB has one sequence number per domain: those of the statements are set back to
    where they were, `before`, and what lies between is sent again.
    """
    if isinstance(requested, GtidSet):
        remaining: Gtids = requested
        for gtid in statements:
            remaining = subtract(remaining, gtid)
        return remaining
    positions, former = _by_domain(requested), _by_domain(before)
    for gtid in statements:
        for domain in _by_domain(gtid):
            positions.pop(domain, None)
            if domain in former:
                positions[domain] = former[domain]
    return MariaGtidSet.parse(",".join(positions.values()))


def _by_domain(gtids: Gtids) -> dict[str, str]:
    return {each.partition("-")[0]: each for each in str(gtids).split(",") if each}
