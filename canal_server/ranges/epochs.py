"""Epochs: which server's binlog the positions of ranged reads belong to.

An epoch is one server and one lifetime of its binlog. A new epoch starts when the
source is another server, or when its binlog was reset: the same file name and offset
then mean something else.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from canal_server.errors import BinlogPurged
from canal_server.model.positions import binlog_file_number
from canal_server.mysql.binlogs import current_end
from canal_server.source.archive.source_binlogs import readable_logs
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
    """Return the current epoch of a server; a new one is durable on return.

    Raises SourceError, MetaStoreError. One thread at a time.
    """
    source, last = source_of(info), subscriptions.epoch()
    if (
        last is not None
        and last.source == source
        and is_same(last, files, scanner, control)
    ):
        return last
    file = current_end(control, info).file
    began_s = scanner.first_event_ms(file) // 1000
    epoch = subscriptions.begin_epoch(source, file, began_s)
    _log.info(
        "epoch %d of ranged reads: the binlog of server %s with %s, created at %d",
        epoch.number,
        source,
        file,
        began_s,
    )
    return epoch


def is_same(
    epoch: Epoch, files: SourceFiles, scanner: Scanner, control: ControlConnection
) -> bool:
    """Return whether a server's files belong to one of its epochs, at any later time.

    `files` were listed through `control` a moment ago. Raises SourceError when the
    server does not answer.
    """
    names = [each.name for each in files.files]
    if epoch.file in names or not names:
        try:
            return scanner.first_event_ms(epoch.file) // 1000 == epoch.began_s
        except BinlogPurged:
            if not names:
                return False  # the file does not exist
        # It was purged since the files were listed, or the binlog was reset.
        names = [each.name for each in readable_logs(control)]
        if epoch.file in names:
            return False  # there is a file of this name, but it cannot be read
    # The file is purged if all existing files are younger.
    return binlog_file_number(names[0]) > binlog_file_number(epoch.file)
