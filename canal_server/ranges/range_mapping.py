"""Positions of older epochs: where they are in the current binlog of the source.

A position on another server means nothing here except by the GTID set executed there::

    set ──► position: the boundary before the first transaction that the set lacks
        └─► settled:  the boundary after the last transaction that it has

They are the same boundary where both servers committed in the same order. Where they
did not, transactions in the set are left out of what is read between the two. Leaves
out where a set comes from: every position is stored with its set.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from canal_server.errors import BinlogPurged, ClientError
from canal_server.messages import ranged_read_messages
from canal_server.model.ranges import EpochPosition
from canal_server.mysql.binlogs import current_end, executed_gtids
from canal_server.mysql.standby import replica_channels, without_lost
from canal_server.protocol.range_messages import NOT_HERE, OTHER_EPOCH, PURGED
from canal_server.ranges.epochs import is_same
from canal_server.source.read.gtid_sets import contains, parse, subtract
from canal_server.source.read.start_position import StartPosition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.model.ranges import Epoch
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.source.begin.search import BinlogSearch
    from canal_server.source.read.available_positions import SourceFiles
    from canal_server.source.read.binlog_scan import Scanner
    from canal_server.source.read.ddl_scan import DdlScanner
    from canal_server.source.read.gtid_sets import Gtids

_log = logging.getLogger(__name__)

_SHOWN: Final = 200  # characters of a set in a message


@dataclass(frozen=True, slots=True)
class Mapped:
    """Where a reader at a position continues, in the current binlog.

    From `position` on, without what is in `skips`; None leaves nothing out. None of the
    skipped transactions lies after `settled`.
    """

    position: EpochPosition
    settled: EpochPosition
    skips: Gtids | None = None


class RangeMapper:
    """Finds positions of older epochs in one server's binlog; for one thread."""

    def __init__(  # noqa: PLR0917  # all parts of one connection to a server
        self,
        control: ControlConnection,
        info: ServerInfo,
        epochs: Sequence[Epoch],
        files: SourceFiles,
        search: BinlogSearch,
        scanner: Scanner,
        statements: DdlScanner,
    ) -> None:
        self._control = control
        self._info = info
        self._epochs = epochs  # the last one is the current one
        self._files = files
        self._search = search
        self._scanner = scanner
        self._statements = statements
        self._sets: dict[str, tuple[Gtids, Gtids]] = {}  # by the text of a set

    def start(self, position: EpochPosition) -> Mapped:
        """Return where to read what follows a position of an older epoch.

        Raises SourceError, and ClientError where it is unknown or not yet reached.
        """
        self._check_line(position)
        gtids, executed = self._sets_of(position)
        try:
            return self._find(gtids, executed)
        except BinlogPurged as error:
            raise ClientError(
                f"the source has purged what follows {position}: {error}", code=PURGED
            ) from error

    def range(
        self, start: EpochPosition, end: EpochPosition
    ) -> tuple[EpochPosition, EpochPosition]:
        """Return a range of older epochs as one that ends in this binlog.

        It has the same transactions. Raises as `start`.
        """
        first, last = self.start(start), self.start(end)
        settled = replace(last.settled, gtids=str(self._executed_at(last.settled)))
        # What this server had committed before that point, and the other one had not.
        early = subtract(parse(settled.gtids, self._info), self._sets_of(end)[0])
        if not early and first.skips is None:
            return replace(first.position, gtids=start.gtids), settled
        if early and self._info.is_mariadb:
            raise self._unknown(
                end, "the servers have several domains, in different orders"
            )
        skips = first.skips or self._sets_of(start)[0]
        more = skips.union(early)  # type: ignore[arg-type]  # both of one kind
        return replace(start, gtids=str(more)), settled

    def position_of_set(self, gtids: Gtids) -> tuple[str, int]:
        """Return the boundary before the first transaction that a set lacks.

        The previous end of the binlog if there is none. Raises SourceError.
        """
        end = current_end(self._control, self._info)
        begin = StartPosition("", 0, gtids, by_gtid=True)
        first = self._statements.first_position(begin.dump_start())
        if first is None:
            return end.file, end.position
        found = self._search.transaction_start(
            first.journal_name or "", first.position or 0
        )
        return found.file, found.offset

    def _find(self, gtids: Gtids, executed: Gtids) -> Mapped:
        number = self._epochs[-1].number
        position = EpochPosition(number, *self.position_of_set(gtids))
        # Transactions lost with another server are not waited for.
        present = subtract(gtids, subtract(gtids, executed))
        if self._info.is_mariadb:
            present = gtids  # already without them
        before = self._executed_at(position)
        if contains(before, present):
            return Mapped(position, position)
        found = self._scanner.boundary_of_set(
            position.journal, position.position, before, present
        )
        if found is None:
            raise ClientError(
                f"the source's binlog does not yet have all of {str(present)[:_SHOWN]},"
                " which was read from another server; try again",
                code=NOT_HERE,
            )
        return Mapped(position, EpochPosition(number, *found), gtids)

    def _executed_at(self, position: EpochPosition) -> Gtids:
        return self._search.executed_at(position.journal, position.position)[1]

    # --- checks -----------------------------------------------------------------------

    def _check_line(self, position: EpochPosition) -> None:
        """Raise ClientError where a server's binlog was reset since a position.

        It then reuses its GTIDs for other transactions.
        """
        now = self._epochs[-1]
        since = [each for each in self._epochs if each.number >= position.epoch]
        if position.epoch >= now.number or since[0].number != position.epoch:
            raise self._unknown(position, "its epoch is unknown")
        for one, other in itertools.pairwise(since):
            if one.source == other.source:
                raise self._unknown(
                    position, f"the binlog of server {one.source} was reset since"
                )
        for each in since[:-1]:
            if each.source == now.source and not is_same(
                each, self._files, self._scanner, self._control
            ):
                raise self._unknown(
                    position, f"the binlog of server {now.source} was reset since"
                )

    def _sets_of(self, position: EpochPosition) -> tuple[Gtids, Gtids]:
        """Return a position's set, and everything that the server has executed.

        Raises ClientError when the position has no set, or the server not yet all of
        it.
        """
        if position.gtids not in self._sets:
            self._sets[position.gtids] = self._look_at_set(position)
        return self._sets[position.gtids]

    def _look_at_set(self, position: EpochPosition) -> tuple[Gtids, Gtids]:
        info = self._info
        if not info.has_gtids:
            raise self._unknown(position, "the source has no GTIDs")
        if not position.gtids:
            raise self._unknown(position, "its GTID set is unknown")
        try:
            gtids = parse(position.gtids, info)
        except ValueError as error:
            raise self._unknown(
                position, f"its GTID set is not of this source's kind: {error}"
            ) from error
        executed = parse(executed_gtids(self._control, info), info)
        missing = subtract(gtids, executed)
        is_replica = False
        if missing or info.is_mariadb:
            is_replica = bool(replica_channels(self._control, info))
        if missing and is_replica:
            raise ClientError(
                f"{self._control.access.address}: this replica has not yet executed"
                f" {str(missing)[:_SHOWN]}, which was read from another server; if it"
                " is the source now, run RESET REPLICA ALL; try again",
                code=NOT_HERE,
            )
        if missing and not info.is_mariadb and info.server_uuid in str(missing):
            raise self._unknown(
                position,
                "the source has lost transactions of its own,"
                f" {str(missing)[:_SHOWN]}: its binlog was reset, or the server"
                " was restored",
            )
        if info.is_mariadb and not is_replica:
            gtids = parse(without_lost(self._control, position.gtids), info)
            missing = subtract(parse(position.gtids, info), gtids)
        if missing:
            ranged_read_messages.TRANSACTIONS_DIED_WITH_SOURCE.log(
                _log, self._control.access.address, str(missing)[:_SHOWN]
            )
        return gtids, executed

    def _unknown(self, position: EpochPosition, why: str) -> ClientError:
        return other_epoch(position, self._epochs[-1], why)


def other_epoch(position: EpochPosition, epoch: Epoch, why: str) -> ClientError:
    """Return the refusal of a position that means nothing in the current epoch."""
    return ClientError(
        f"{position} is a position of another binlog: the source is server"
        f" {epoch.source} in epoch {epoch.number} now, because it was replaced or its"
        f" binlog was reset, and {why}; start a new subscription at a time or a GTID"
        " set before the change",
        code=OTHER_EPOCH,
    )
