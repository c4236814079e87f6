"""Epochs: which server's binlog the places of ranged reads belong to.

An epoch is a server and one life of its binlog. Another begins when the source is
another server, or when its binlog was begun anew: then the same file name and offset
mean something else.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from canal_server.errors import BinlogPurged
from canal_server.model.positions import binlog_file_number
from canal_server.mysql.binlogs import current_end
from canal_server.source.schema.source_traits import source_of

if TYPE_CHECKING:
    from canal_server.model.ranges import Epoch
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.ranges.range_cursors import Subscriptions
    from canal_server.source.read.available_positions import SourceFiles
    from canal_server.source.read.binlog_scan import Scanner

_log = logging.getLogger(__name__)


def epoch_of(
    subscriptions: Subscriptions,
    control: ControlConnection,
    info: ServerInfo,
    files: SourceFiles,
    scanner: Scanner,
) -> Epoch:
    """Return the epoch of a server as it is now; a new one is durable then.

    Raises SourceError, MetaStoreError. One thread at a time.
    """
    source, last = source_of(info), subscriptions.epoch()
    if last is not None and last.source == source and is_same(last, files, scanner):
        return last
    file = current_end(control, info).file
    began_s = scanner.first_event_ms(file) // 1000
    epoch = subscriptions.begin_epoch(source, file, began_s)
    _log.info(
        "epoch %d of ranged reads: the binlog of server %s with %s, begun at %d",
        epoch.number,
        source,
        file,
        began_s,
    )
    return epoch


def is_same(epoch: Epoch, files: SourceFiles, scanner: Scanner) -> bool:
    """Tell whether a server's files are those of an epoch of it, younger or older.

    Raises SourceError when the server does not say.
    """
    names = [each.name for each in files.files]
    if epoch.file in names or not names:
        try:
            return scanner.first_event_ms(epoch.file) // 1000 == epoch.began_s
        except BinlogPurged:
            return False  # there is no such file
    # It was purged, if all that are there are younger.
    return binlog_file_number(names[0]) > binlog_file_number(epoch.file)
