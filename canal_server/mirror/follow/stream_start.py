"""Where the stream starts, so that no followed table misses a change.

    checkpoint   subscription   the stream starts
    exists       exists         at the checkpoint
    exists       missing        at the checkpoint; the subscription is created again
    missing      exists         at the subscription's cursor, which is never after the
                                lake's position: repeated changes are recognized
    missing      missing        at the lake's position (`feed`), where the subscription
                                is created again

Only Spark knows the position in the checkpoint. So the first batch is checked as well:
one that leaves a gap is not applied (`micro_batches`). If the binlog cannot be read
from the lake's position on, or is another binlog there, a person must copy all tables
again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from canal_server.client.range_client import (
    OTHER_EPOCH,
    PURGED,
    REFUSED,
    UNKNOWN_SUBSCRIPTION,
)
from canal_server.errors import CanalError, ClientError, SourceError
from canal_server.messages.mirror import mirror_stream_messages
from canal_server.mirror.session.spark_session import in_settings, stream_options
from canal_server.mirror.state.feed import Feed, has_all, read_feed
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.spark.options.offsets import version_of
from canal_server.spark.options.servers import Channel
from canal_server.spark.options.source_options import read_options

if TYPE_CHECKING:
    from canal_server.client.range_client import RangePosition, RangeSubscribed
    from canal_server.mirror.lake.lake_storage import Folder
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

_NO_POSITION: Final = (PURGED, OTHER_EPOCH, REFUSED)  # permanent refusals


class DataLossError(CanalError):
    """Changes that the stream needs are lost: tables must be copied again."""


def subscription_of(settings: MirrorSettings, generation: int) -> str:
    """Return the name under which the server stores the stream's cursor."""
    return f"{settings.name}-{generation}" if generation else settings.name


def begin_stream(
    settings: MirrorSettings,
    folder: Folder,
    generation: int,
    stop: Stop,
    *,
    is_followed: bool,
) -> Feed:
    """Start the stream, unless it has started; returns the lake's position.

    Store it before a table is copied. `is_followed`: the lake has tables that must miss
    nothing. Raises DataLossError if they would, CanalError if no server answers or a
    stop is requested first.
    """
    feed = read_feed(folder, generation)
    beginning = _Beginning(settings, generation, stop)
    try:
        if feed is not None:
            beginning.resume(feed)
            return feed
        return beginning.first(is_followed=is_followed)
    except SourceError:
        raise
    except (CanalError, OSError) as error:
        kind = DataLossError if isinstance(error, DataLossError) else CanalError
        raise kind(in_settings(str(error))) from error
    finally:
        beginning.close()


def reset_subscription(settings: MirrorSettings, feed: Feed | None, stop: Stop) -> None:
    """Move the subscription to the lake's position, or before it.

    Raises what `begin_stream` raises, CanalError and OSError.
    """
    if feed is not None:
        beginning = _Beginning(settings, feed.generation, stop)
        try:
            beginning.resume(feed)
        finally:
            beginning.close()


def identity_of(info: ServerInfo) -> str:
    """Return the identity of a database."""
    return info.server_uuid or str(info.server_id)


class _Beginning:
    """Queries and creates the server's subscription; for one thread."""

    def __init__(self, settings: MirrorSettings, generation: int, stop: Stop) -> None:
        self._settings = settings
        self._generation = generation
        self._stop = stop
        self._name = subscription_of(settings, generation)
        self._destination = settings.canal.destination
        self._options = read_options(stream_options(settings, self._name))
        self._channel = Channel(self._options, self._destination, stop=stop)

    def close(self) -> None:
        """Close the connection to the server."""
        self._channel.close()

    def first(self, *, is_followed: bool) -> Feed:
        """Start at the subscription's cursor, or at the end of the binlog."""
        if is_followed and self._cursor() is None:
            raise DataLossError(
                f"subscription {self._name} is missing, and the lake does not record "
                "up to which position its tables have all changes"
            )
        made = self._subscribe("latest")
        if made.created:
            log.info("the stream starts at %s", made.cursor)
        return Feed(self._destination, made.cursor, self._generation)

    def resume(self, feed: Feed) -> None:
        """Check that the subscription exists, and is not after the lake's position."""
        if feed.destination != self._destination:
            raise DataLossError(
                f"canal.destination is {self._destination}, but the tables in the lake "
                f"are of {feed.destination}: set it back, unless this is intended"
            )
        cursor = self._cursor()
        if cursor is None:
            mirror_stream_messages.MIRROR_SUBSCRIPTION_MISSING.log(log, self._name)
            self._recreate(feed)
        elif cursor.epoch == feed.position.epoch and _is_behind(cursor, feed.position):
            mirror_stream_messages.MIRROR_SUBSCRIPTION_BEHIND.log(
                log, self._name, cursor, feed.position
            )
            self._check_same(feed)
            self._channel.call(lambda c: c.unsubscribe(self._destination, self._name))
            self._recreate(feed)
        else:
            self._subscribe("latest")  # with the current filter

    def _recreate(self, feed: Feed) -> None:
        """Create the subscription at the lake's position."""
        position, start = feed.position, "latest"
        epoch = self._locate("latest").epoch
        if position.epoch > epoch:
            raise DataLossError(
                f"the lake ends at {position}, but canal-server has lost its data and "
                "restarted its epochs: the changes since then are unknown"
            )
        if position.epoch == epoch:
            self._check_same(feed)
            start = f"file:{position.journal}:{position.position}"
        # In another server's binlog, only the checkpoint knows the later changes: if it
        # is missing as well, the first batch leaves a gap.
        made = self._subscribe(start)
        log.info("subscription %s is at %s", self._name, made.cursor)

    # --- whether a position is still valid
    # ---------------------------------------------

    def _check_same(self, feed: Feed) -> None:
        """Raise DataLossError unless the binlog is the one that was read before.

        If a subscription is lost, the server's record of epochs may be lost as well.
        """
        position = feed.position
        try:
            found = self._locate(f"file:{position.journal}:{position.position}")
        except ClientError as error:
            if error.code not in _NO_POSITION:
                raise
            raise DataLossError(
                f"the lake ends at {position}, but the changes after it are no longer "
                f"available ({error})"
            ) from error
        if position.gtids and found.gtids:
            ours, theirs = position.gtids, found.gtids
            is_same = has_all(ours, theirs) and has_all(theirs, ours)
        else:
            is_same = feed.source in ("", self._source())
        if not is_same:
            raise DataLossError(
                f"the lake ends at {position} of another binlog: the source was "
                "replaced or its binlog was reset, at a time that canal-server does "
                "not know"
            )

    def _source(self) -> str:
        with ControlConnection(self._settings.source.access, self._stop) as control:
            return identity_of(read_server_info(control))

    # --- requests ---------------------------------------------------------------------

    def _cursor(self) -> RangePosition | None:
        """Return the subscription's position; None if it does not exist."""
        try:
            return self._locate("acked")
        except ClientError as error:
            if error.code != UNKNOWN_SUBSCRIPTION:
                raise
            return None

    def _locate(self, position: str) -> RangePosition:
        return self._channel.call(
            lambda c: c.locate(self._destination, position, self._name)
        )

    def _subscribe(self, start: str) -> RangeSubscribed:
        return self._channel.call(
            lambda c: c.subscribe(
                self._destination, self._name, self._options.wire_filter, start
            )
        )


def _is_behind(position: RangePosition, other: RangePosition) -> bool:
    return version_of(position) > version_of(other)
