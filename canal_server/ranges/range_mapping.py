"""Places of older epochs: where they are in the binlog that the source has now.

A place of another server means nothing here but by the GTID set executed there::

    set of the place ──► place:   the boundary behind which its first lack lies
                    └──► settled: the boundary behind which nothing of it lies

They are one boundary where both servers committed in the same order. Where they did
not, what the set has is left out of what is read between the two. Leaves out where a
set comes from: whoever has a place has its set beside it.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from canal_server.errors import BinlogPurged, ClientError
from canal_server.messages import ranged_read_messages
from canal_server.model.ranges import RangePlace
from canal_server.mysql.binlogs import current_end, executed_gtids
from canal_server.mysql.standby import replica_channels, without_lost
from canal_server.protocol.range_messages import NOT_HERE, OTHER_EPOCH, PURGED
from canal_server.ranges.epochs import is_same
from canal_server.source.read.gtid_sets import contains, parse, subtract
from canal_server.source.read.start_position import Place

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
    """Where reading goes on that has come to a place, in the binlog of now.

    From `place` on, without what is in `skips`: None leaves nothing out. Nothing of
    that lies behind `settled`.
    """

    place: RangePlace
    settled: RangePlace
    skips: Gtids | None = None


class RangeMapper:
    """Finds places of older epochs in one server's binlog; for one thread."""

    def __init__(  # noqa: PLR0917  # what a look at a server has, from one place
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
        self._epochs = epochs  # the last one is that of now
        self._files = files
        self._search = search
        self._scanner = scanner
        self._statements = statements
        self._sets: dict[str, tuple[Gtids, Gtids]] = {}  # by the text of a set

    def start(self, place: RangePlace) -> Mapped:
        """Return where what lies behind a place of an older epoch is to be read.

        Raises SourceError, and ClientError where it cannot be told or is yet to come.
        """
        self._check_line(place)
        wanted, executed = self._sets_of(place)
        try:
            return self._find(wanted, executed)
        except BinlogPurged as error:
            raise ClientError(
                f"{place} lies behind what the source still has: {error}", code=PURGED
            ) from error

    def range(
        self, start: RangePlace, end: RangePlace
    ) -> tuple[RangePlace, RangePlace]:
        """Return a range of older epochs as one that ends in this binlog.

        It has the same transactions. Raises as `start`.
        """
        first, last = self.start(start), self.start(end)
        behind = replace(last.settled, gtids=str(self._executed_at(last.settled)))
        # What this server has committed before, and the other one had not by then.
        early = subtract(parse(behind.gtids, self._info), self._sets_of(end)[0])
        if not early and first.skips is None:
            return replace(first.place, gtids=start.gtids), behind
        if early and self._info.is_mariadb:
            raise self._unknown(
                end, "the servers have several domains, in different orders"
            )
        skips = first.skips or self._sets_of(start)[0]
        more = skips.union(early)  # type: ignore[arg-type]  # both of one kind
        return replace(start, gtids=str(more)), behind

    def place_of_set(self, wanted: Gtids) -> tuple[str, int]:
        """Return the boundary behind which the first thing lies that a set lacks.

        The end that the binlog had before if there is none. Raises SourceError.
        """
        end = current_end(self._control, self._info)
        begin = Place("", 0, wanted, by_gtid=True)
        first = self._statements.first_position(begin.dump_start())
        if first is None:
            return end.file, end.position
        found = self._search.transaction_start(
            first.journal_name or "", first.position or 0
        )
        return found.file, found.offset

    def _find(self, wanted: Gtids, executed: Gtids) -> Mapped:
        number = self._epochs[-1].number
        place = RangePlace(number, *self.place_of_set(wanted))
        # What died with another server is not waited for.
        present = subtract(wanted, subtract(wanted, executed))
        if self._info.is_mariadb:
            present = wanted  # without it already
        before = self._executed_at(place)
        if contains(before, present):
            return Mapped(place, place)
        found = self._scanner.boundary_of_set(
            place.journal, place.position, before, present
        )
        if found is None:
            raise ClientError(
                f"the source's binlog does not have all of {str(present)[:_SHOWN]} yet,"
                " which was read of another server; try again",
                code=NOT_HERE,
            )
        return Mapped(place, RangePlace(number, *found), wanted)

    def _executed_at(self, place: RangePlace) -> Gtids:
        return self._search.executed_at(place.journal, place.position)[1]

    # --- whether it can be told -------------------------------------------------------

    def _check_line(self, place: RangePlace) -> None:
        """Raise ClientError where a server's binlog was begun anew since a place.

        It gives its GTIDs a second time then, to other transactions.
        """
        now = self._epochs[-1]
        since = [each for each in self._epochs if each.number >= place.epoch]
        if place.epoch >= now.number or since[0].number != place.epoch:
            raise self._unknown(place, "no such epoch is known")
        for one, other in itertools.pairwise(since):
            if one.source == other.source:
                raise self._unknown(
                    place, f"server {one.source} has begun its binlog anew since"
                )
        for each in since[:-1]:
            if each.source == now.source and not is_same(
                each, self._files, self._scanner
            ):
                raise self._unknown(
                    place, f"server {now.source} has begun its binlog anew since"
                )

    def _sets_of(self, place: RangePlace) -> tuple[Gtids, Gtids]:
        """Return a place's set, and all that the server has executed.

        Raises ClientError where there is none, or not yet all of it.
        """
        if place.gtids not in self._sets:
            self._sets[place.gtids] = self._look_at_set(place)
        return self._sets[place.gtids]

    def _look_at_set(self, place: RangePlace) -> tuple[Gtids, Gtids]:
        info = self._info
        if not info.has_gtids:
            raise self._unknown(place, "the source has no GTIDs")
        if not place.gtids:
            raise self._unknown(place, "no GTID set is known of it")
        try:
            wanted = parse(place.gtids, info)
        except ValueError as error:
            raise self._unknown(
                place, f"its GTID set is none of this source: {error}"
            ) from error
        executed = parse(executed_gtids(self._control, info), info)
        missing = subtract(wanted, executed)
        is_replica = False
        if missing or info.is_mariadb:
            is_replica = bool(replica_channels(self._control, info))
        if missing and is_replica:
            raise ClientError(
                f"{self._control.access.address}: this replica is yet to execute"
                f" {str(missing)[:_SHOWN]}, which was read of another server; if it is"
                " the source now, run RESET REPLICA ALL; try again",
                code=NOT_HERE,
            )
        if missing and not info.is_mariadb and info.server_uuid in str(missing):
            raise self._unknown(
                place,
                "the source has lost transactions of its own,"
                f" {str(missing)[:_SHOWN]}: its binlog was begun anew, or it was"
                " restored",
            )
        if info.is_mariadb and not is_replica:
            wanted = parse(without_lost(self._control, place.gtids), info)
            missing = subtract(parse(place.gtids, info), wanted)
        if missing:
            ranged_read_messages.TRANSACTIONS_DIED_WITH_SOURCE.log(
                _log, self._control.access.address, str(missing)[:_SHOWN]
            )
        return wanted, executed

    def _unknown(self, place: RangePlace, why: str) -> ClientError:
        return other_epoch(place, self._epochs[-1], why)


def other_epoch(place: RangePlace, epoch: Epoch, why: str) -> ClientError:
    """Return the refusal of a place that means nothing in the epoch of now."""
    return ClientError(
        f"{place} is a place of another binlog: the source is server {epoch.source} in"
        f" epoch {epoch.number} now, because it was replaced or its binlog was begun"
        f" anew, and {why}; begin a subscription anew, at a time or a GTID set before"
        " the change",
        code=OTHER_EPOCH,
    )
