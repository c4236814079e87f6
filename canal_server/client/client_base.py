"""What the client that blocks and the one of asyncio have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, TypeVar

from canal_server.client.client_options import (
    TRANSACTION_BYTES_MAX,
    ClientOptions,
    ignore,
)
from canal_server.client.message_stream import MessageStream
from canal_server.client.readers import Readers
from canal_server.tls.client_tls import ClientTls

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo
    from pathlib import Path
    from ssl import SSLContext

    from canal_server.client.client_options import AckPolicy, OverLimit
    from canal_server.client.row_mapping import RowMapper

T = TypeVar("T")


class ClientBase(ABC):
    """The options of a client, and what it knows without asking the server."""

    def __init__(  # noqa: PLR0917  # host, port, destination is a familiar order
        self,
        host: str = "127.0.0.1",
        port: int = 11111,
        destination: str = "example",
        client_id: int = 1001,
        user: str = "",
        password: str = "",
        timeout_s: float = 30.0,
        *,
        filter: str = "",  # noqa: A002  # the protocol's term
        batch_size: int = 1000,
        values: Literal["typed", "text"] = "typed",
        time_zone: tzinfo | None = None,
        load_json: Callable[[str], object] | None = None,
        ack: AckPolicy = "message",
        whole_transactions: bool = False,
        transaction_bytes_max: int = TRANSACTION_BYTES_MAX,
        over_limit: OverLimit = "error",
        reconnect_for_s: float | None = None,
        tls: bool | SSLContext = False,
        tls_ca_file: str | Path = "",
        tls_cert_file: str | Path = "",
        tls_key_file: str | Path = "",
        on_connect: Callable[[str], object] = ignore,
        on_disconnect: Callable[[Exception], object] = ignore,
        on_redelivery: Callable[[], object] = ignore,
    ) -> None:
        readers = Readers(values, time_zone, load_json)
        options = ClientOptions(
            host=host,
            port=port,
            destination=destination,
            client_id=client_id,
            user=user,
            password=password,
            timeout_s=timeout_s,
            filter=filter,
            batch_size=batch_size,
            ack=ack,
            whole_transactions=whole_transactions,
            transaction_bytes_max=transaction_bytes_max,
            over_limit=over_limit,
            reconnect_for_s=reconnect_for_s,
            on_connect=on_connect,
            on_disconnect=on_disconnect,
            on_redelivery=on_redelivery,
        )
        self._options = options
        self._tls = ClientTls(tls, tls_ca_file, tls_cert_file, tls_key_file).context()
        self._stream = MessageStream(options, readers, self._wake)

    @abstractmethod
    def _wake(self) -> None:
        """Interrupt a wait; from any thread and from signal handlers."""

    @property
    def destination(self) -> str:
        """The name of the destination."""
        return self._options.destination

    @property
    def client_id(self) -> int:
        """The number that identifies this client; may be set before it subscribes."""
        return self._stream.session.client_id

    @client_id.setter
    def client_id(self, client_id: int) -> None:
        self._stream.session.client_id = client_id

    @property
    def ack_policy(self) -> AckPolicy:
        """The option `ack`."""
        return self._options.ack

    @property
    def lag(self) -> float | None:
        """Seconds since the source executed the newest change that was received.

        0.0 if the server had no more changes when it was last asked; None before.
        """
        return self._stream.lag_s

    def stop(self) -> None:
        """End iterations after the current message, which is acked by the policy.

        May be called from any thread and from signal handlers. A client that was
        stopped cannot iterate again.
        """
        self._stream.stop()

    def _mapper(self, table: str, into: type[T] | RowMapper[T]) -> RowMapper[T]:
        """Return what makes rows of a class. Raises ValueError, TypeError."""
        # Programs without `into` do not need it.
        from canal_server.client.row_mapping import RowMapper  # noqa: PLC0415

        if not table:
            raise ValueError("into needs a table, as its rows have one form")
        return into if isinstance(into, RowMapper) else RowMapper(into)
