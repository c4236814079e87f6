"""Where the stream begins: so that no table that is followed misses anything.

    checkpoint   subscription   the stream goes on
    is there     is there       at the checkpoint
    is there     is gone        at the checkpoint; the subscription is made again
    is gone      is there       at the subscription's cursor, which is never behind
                                the lake's place: what comes again is known
    is gone      is gone        at the lake's place (`feed`), where the subscription
                                is made again

What the checkpoint has is Spark's to know. So the first batch is looked at as well: one
that does not follow on is not taken (`stream`). Where the binlog cannot be read from
the lake's place on, or is another one there, a person is asked to have all copied anew.
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
from canal_server.messages import mirror_stream_messages
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

_NO_PLACE: Final = (PURGED, OTHER_EPOCH, REFUSED)  # refusals that stay


class DataLossError(CanalError):
    """Changes that the stream needs cannot be had: tables have to be copied anew."""


def subscription_of(settings: MirrorSettings, generation: int) -> str:
    """Return the name under which the server keeps how far the stream came."""
    return f"{settings.name}-{generation}" if generation else settings.name


def begin_stream(
    settings: MirrorSettings,
    folder: Folder,
    generation: int,
    stop: Stop,
    *,
    is_followed: bool,
) -> Feed:
    """Have the stream begin, unless it has begun; returns where the lake is.

    That is to be stored before a table is copied. `is_followed`: there are tables in
    the lake that have to miss nothing. Raises DataLossError where they would,
    CanalError when no server answers or a stop is asked for first.
    """
    feed = read_feed(folder, generation)
    beginning = _Beginning(settings, generation, stop)
    try:
        if feed is not None:
            beginning.go_on(feed)
            return feed
        return beginning.first(is_followed=is_followed)
    except SourceError:
        raise
    except (CanalError, OSError) as error:
        kind = DataLossError if isinstance(error, DataLossError) else CanalError
        raise kind(in_settings(str(error))) from error
    finally:
        beginning.close()


def begin_again(settings: MirrorSettings, feed: Feed | None, stop: Stop) -> None:
    """Have the subscription be where the lake is, or before that.

    Raises what `begin_stream` raises, CanalError and OSError.
    """
    if feed is not None:
        beginning = _Beginning(settings, feed.generation, stop)
        try:
            beginning.go_on(feed)
        finally:
            beginning.close()


def identity_of(info: ServerInfo) -> str:
    """Return what tells a database from others."""
    return info.server_uuid or str(info.server_id)


class _Beginning:
    """Asks the server for the subscription, and makes it; for one thread."""

    def __init__(self, settings: MirrorSettings, generation: int, stop: Stop) -> None:
        self._settings = settings
        self._generation = generation
        self._stop = stop
        self._name = subscription_of(settings, generation)
        self._destination = settings.canal.destination
        self._options = read_options(stream_options(settings, self._name))
        self._channel = Channel(self._options, self._destination, stop=stop)

    def close(self) -> None:
        """Let go of the server."""
        self._channel.close()

    def first(self, *, is_followed: bool) -> Feed:
        """Begin where the subscription is, or at the end of the binlog."""
        if is_followed and self._cursor() is None:
            raise DataLossError(
                f"subscription {self._name} is gone, and nothing in the lake tells up "
                "to where its tables have all changes"
            )
        made = self._subscribe("latest")
        if made.created:
            log.info("the stream begins at %s", made.cursor)
        return Feed(self._destination, made.cursor, self._generation)

    def go_on(self, feed: Feed) -> None:
        """See that the subscription is there, and not behind what the lake has."""
        if feed.destination != self._destination:
            raise DataLossError(
                f"canal.destination is {self._destination}, and the tables in the lake "
                f"are those of {feed.destination}: set it back, unless that is meant"
            )
        cursor = self._cursor()
        if cursor is None:
            mirror_stream_messages.MIRROR_SUBSCRIPTION_MISSING.log(log, self._name)
            self._make_again(feed)
        elif cursor.epoch == feed.place.epoch and _is_behind(cursor, feed.place):
            mirror_stream_messages.MIRROR_SUBSCRIPTION_BEHIND.log(
                log, self._name, cursor, feed.place
            )
            self._check_same(feed)
            self._channel.call(lambda c: c.unsubscribe(self._destination, self._name))
            self._make_again(feed)
        else:
            self._subscribe("latest")  # with the filter of now

    def _make_again(self, feed: Feed) -> None:
        """Make the subscription where the lake is."""
        place, start = feed.place, "latest"
        epoch = self._locate("latest").epoch
        if place.epoch > epoch:
            raise DataLossError(
                f"what is in the lake goes up to {place}, and canal-server, whose data "
                "were lost, counts epochs anew: it cannot tell what came since"
            )
        if place.epoch == epoch:
            self._check_same(feed)
            start = f"file:{place.journal}:{place.position}"
        # Of another server's binlog only the checkpoint can tell what came since: when
        # it is gone as well, the first batch does not follow on.
        made = self._subscribe(start)
        log.info("subscription %s stands at %s", self._name, made.cursor)

    # --- whether a place means what it meant ------------------------------------------

    def _check_same(self, feed: Feed) -> None:
        """Raise DataLossError unless the binlog is the one that was read before.

        Where a subscription is lost, so may be what tells whose binlog an epoch is.
        """
        place = feed.place
        try:
            found = self._locate(f"file:{place.journal}:{place.position}")
        except ClientError as error:
            if error.code not in _NO_PLACE:
                raise
            raise DataLossError(
                f"what is in the lake goes up to {place}, and changes behind that "
                f"cannot be read any more ({error})"
            ) from error
        if place.gtids and found.gtids:
            ours, theirs = place.gtids, found.gtids
            is_same = has_all(ours, theirs) and has_all(theirs, ours)
        else:
            is_same = feed.source in ("", self._source())
        if not is_same:
            raise DataLossError(
                f"what is in the lake goes up to {place}, which is a place of another "
                "binlog: the source was replaced, or its binlog begun anew, and "
                "canal-server does not know since when"
            )

    def _source(self) -> str:
        with ControlConnection(self._settings.source.access, self._stop) as control:
            return identity_of(read_server_info(control))

    # --- requests ---------------------------------------------------------------------

    def _cursor(self) -> RangePosition | None:
        """Return where the subscription stands, None when there is none."""
        try:
            return self._locate("acked")
        except ClientError as error:
            if error.code != UNKNOWN_SUBSCRIPTION:
                raise
            return None

    def _locate(self, place: str) -> RangePosition:
        return self._channel.call(
            lambda c: c.locate(self._destination, place, self._name)
        )

    def _subscribe(self, start: str) -> RangeSubscribed:
        return self._channel.call(
            lambda c: c.subscribe(
                self._destination, self._name, self._options.wire_filter, start
            )
        )


def _is_behind(place: RangePosition, other: RangePosition) -> bool:
    return version_of(place) > version_of(other)
