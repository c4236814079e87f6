"""A program around canal-python that does as it is asked; see `fix_interop`.

It needs PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python: the package brings generated
code that is older than the compiled protobuf takes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys

from canal.client import Client
from canal.protocol import CanalProtocol_pb2 as packets
from canal.protocol import EntryProtocol_pb2 as entries

EntryType, EventType = entries.EntryType, entries.EventType


class ProvingClient(Client):  # type: ignore[misc]  # its package has no types
    """A client that proves its password, which the package's own sends in clear.

    The package reads the server's handshake and drops it, so it is noted on the way.
    """

    def check_valid(self, username=b"", password=b""):
        """Log in with what the server's seed makes of the password."""
        handshake = packets.Handshake.FromString(self.greeting.body)
        once = hashlib.sha1(password).digest()
        twice = hashlib.sha1(handshake.seeds + hashlib.sha1(once).digest()).digest()
        token = bytes(a ^ b for a, b in zip(once, twice, strict=True))
        super().check_valid(username, token.hex().encode())

    def connect(self, host="127.0.0.1", port=11111):
        """Connect and keep what the server says first."""
        read = self.connector.read_next_packet

        def read_and_keep():
            data = read()
            self.greeting = packets.Packet.FromString(data)
            return data

        self.connector.read_next_packet = read_and_keep
        super().connect(host, port)
        self.connector.read_next_packet = read


def props_of(pairs):
    """Return properties as an object."""
    return {pair.key: pair.value for pair in pairs}


def column_json(column):
    """Return a column as JSON may hold it."""
    return {
        "index": column.index,
        "sqlType": column.sqlType,
        "name": column.name,
        "key": column.isKey,
        "updated": column.updated,
        "null": column.isNull,
        "value": column.value,
        "length": column.length,
        "mysqlType": column.mysqlType,
    }


def content_json(entry):
    """Return what the stored value of an entry says."""
    if entry.entryType == EntryType.TRANSACTIONBEGIN:
        begin = entries.TransactionBegin.FromString(entry.storeValue)
        return {"threadId": begin.threadId, "transactionId": begin.transactionId}
    if entry.entryType == EntryType.TRANSACTIONEND:
        end = entries.TransactionEnd.FromString(entry.storeValue)
        return {"transactionId": end.transactionId, "time": end.executeTime}
    change = entries.RowChange.FromString(entry.storeValue)
    return {
        "tableId": change.tableId,
        "event": EventType.Name(change.eventType),
        "ddl": change.isDdl,
        "sql": change.sql,
        "schema": change.ddlSchemaName,
        "rows": [
            {
                "before": [column_json(column) for column in row.beforeColumns],
                "after": [column_json(column) for column in row.afterColumns],
            }
            for row in change.rowDatas
        ],
    }


def entry_json(entry):
    """Return an entry as JSON may hold it."""
    header = entry.header
    return {
        "type": EntryType.Name(entry.entryType),
        "version": header.version,
        "file": header.logfileName,
        "offset": header.logfileOffset,
        "serverId": header.serverId,
        "encoding": header.serverenCode,
        "time": header.executeTime,
        "source": entries.Type.Name(header.sourceType),
        "schema": header.schemaName,
        "table": header.tableName,
        "length": header.eventLength,
        "event": EventType.Name(header.eventType),
        "props": props_of(header.props),
        "content": content_json(entry),
    }


def message_json(message):
    """Return a message as JSON may hold it."""
    return {
        "id": message["id"],
        "entries": [entry_json(entry) for entry in message["entries"]],
    }


class Driver:
    """Does what the commands say with one client."""

    client: Client
    destination: bytes

    def connect(self, *words):
        """Connect and log in as the package does it."""
        self._connect(Client(), *words)

    def connect_proving(self, *words):
        """Connect and log in with a proof of the password."""
        self._connect(ProvingClient(), *words)

    def _connect(self, client, *words):
        host, port, user, password, destination = words
        self.client, self.destination = client, destination.encode()
        client.connect(host, int(port))
        client.check_valid(user.encode(), password.encode())

    def subscribe(self, filter_):
        """Subscribe."""
        self.client.subscribe(b"1001", self.destination, filter_.encode())

    def get(self, size, timeout_ms):
        """Get without an ack."""
        timeout = int(timeout_ms) if timeout_ms else -1
        return message_json(self.client.get_without_ack(int(size), timeout))

    def take(self, size):
        """Get with an ack."""
        return message_json(self.client.get(int(size)))

    def ack(self, batch_id):
        """Ack a batch."""
        self.client.ack(int(batch_id))

    def rollback(self, batch_id):
        """Roll one batch back, or all."""
        self.client.rollback(int(batch_id or 0))

    def disconnect(self):
        """Leave."""
        self.client.disconnect()

    def parse(self, data):
        """Read an entry."""
        return entry_json(entries.Entry.FromString(bytes.fromhex(data)))


def main():
    """Carry out one command a line, write the result of each as a line of JSON."""
    driver = Driver()
    for line in sys.stdin:
        verb, *arguments = line.rstrip("\n").split("\t")
        try:
            # The package prints what it does.
            with contextlib.redirect_stdout(sys.stderr):
                shown = getattr(driver, verb)(*arguments) or {}
        except Exception as error:  # noqa: BLE001  # it raises nothing more exact
            shown = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(shown), flush=True)


if __name__ == "__main__":
    main()
