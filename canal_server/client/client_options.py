"""The options of a client, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from canal_server.client.connection.server_addresses import (
    Address,
    parse_addresses,
    zookeeper_servers,
)

if TYPE_CHECKING:
    from collections.abc import Callable

AckPolicy: TypeAlias = Literal["message", "transaction", "manual"] | float
OverLimit: TypeAlias = Literal["error", "part"]

TRANSACTION_BYTES_MAX: Final = 64 * 1024 * 1024
_ID_MIN, _ID_MAX = -(2**15), 2**15 - 1


def ignore(*_: object) -> None:
    """Take any event and do nothing."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Whom to ask for what, and how long to try."""

    host: str
    port: int
    destination: str
    client_id: int
    user: str
    password: str = field(repr=False)
    timeout_s: float
    filter: str
    batch_size: int
    ack: AckPolicy
    whole_transactions: bool
    transaction_bytes_max: int
    over_limit: OverLimit
    reconnect_for_s: float | None
    on_connect: Callable[[str], object]
    on_disconnect: Callable[[Exception], object]
    on_redelivery: Callable[[], object]

    def __post_init__(self) -> None:
        """Raise ValueError, with the name of the option."""
        self._check_types()
        if not self.destination:
            raise ValueError("destination is empty: expected the name of a destination")
        if not _ID_MIN <= self.client_id <= _ID_MAX:
            raise ValueError(
                f"client_id = {self.client_id}: expected {_ID_MIN} to {_ID_MAX}"
            )
        self._check_ack()
        if self.over_limit not in {"error", "part"}:
            raise ValueError(
                f'over_limit = {self.over_limit!r}: expected "error" or "part"'
            )
        check_seconds("timeout_s", self.timeout_s)
        check_positive("batch_size", self.batch_size)
        check_positive("transaction_bytes_max", self.transaction_bytes_max)
        if self.reconnect_for_s is not None and not self.reconnect_for_s >= 0:
            raise ValueError(
                f"reconnect_for_s = {self.reconnect_for_s!r}: expected 0 or more"
                " seconds, or None for no limit"
            )
        if self.zookeeper is None:
            self.addresses()

    def _check_types(self) -> None:
        for name in ("host", "destination", "user", "password", "filter"):
            value = getattr(self, name)
            if not isinstance(value, str):
                kind = type(value).__name__  # not the value, it may be a password
                raise ValueError(f"{name} is of type {kind}: expected a text")  # noqa: TRY004
        for name in ("port", "client_id"):
            _check_integer(name, getattr(self, name))
        for name in ("reconnect_for_s", "ack"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                if name == "ack" and isinstance(value, str):
                    continue
                raise ValueError(f"{name} = {value!r}: expected a number of seconds")
        for name in ("on_connect", "on_disconnect", "on_redelivery"):
            value = getattr(self, name)
            if not callable(value):
                raise ValueError(f"{name} = {value!r}: expected a function")  # noqa: TRY004

    def _check_ack(self) -> None:
        if isinstance(self.ack, str):
            if self.ack not in {"message", "transaction", "manual"}:
                raise ValueError(
                    f'ack = {self.ack!r}: expected "message", "transaction", "manual"'
                    " or a number of seconds"
                )
        elif self.ack is None or not (math.isfinite(self.ack) and self.ack > 0):
            raise ValueError(f"ack = {self.ack!r}: expected seconds, more than 0")

    @property
    def zookeeper(self) -> str | None:
        """The servers of ZooKeeper that find the server; None: `addresses` do."""
        return zookeeper_servers(self.host)

    def addresses(self) -> tuple[Address, ...]:
        """Return the servers to try, in order. Raises ValueError."""
        return parse_addresses(self.host, self.port)


def check_seconds(name: str, value: float, *, zero: bool = False) -> None:
    """Raise ValueError unless a value is a finite number, more than 0, or also 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and math.isfinite(value) and (value > 0 or (zero and not value))):
        least = "0 or more" if zero else "more than 0"
        raise ValueError(f"{name} = {value!r}: expected a number of seconds, {least}")


def check_positive(name: str, value: int) -> None:
    """Raise ValueError unless a value is an integer, more than 0."""
    _check_integer(name, value)
    if value <= 0:
        raise ValueError(f"{name} = {value!r}: expected more than 0")


def _check_integer(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} = {value!r}: expected an integer")  # noqa: TRY004
