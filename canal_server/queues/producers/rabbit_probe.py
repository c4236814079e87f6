"""Asks a broker of RabbitMQ what messages will meet; nothing is declared or sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.queues.producers.queue_producer import BrokerUnavailableError
from canal_server.queues.producers.rabbit_connection import RabbitConnection
from canal_server.queues.producers.rabbit_producer import find_exchange

if TYPE_CHECKING:
    from canal_server.queues.producers.rabbit_settings import RabbitSettings


class RabbitProbe:
    """A connection that looks; `open` it first, and `close` it at last."""

    def __init__(self, settings: RabbitSettings, *, purpose: str) -> None:
        """Load the library. Raises CanalError when it is not installed."""
        self.settings = settings
        self._purpose = purpose
        self._connection = RabbitConnection(settings, self, purpose=purpose)

    def open(self, give_up_at: float) -> None:
        """Connect to one of the addresses. Raises BrokerUnavailableError."""
        problems = []
        for address in self.settings.addresses:
            try:
                self._connection.open(*address, give_up_at)
            except BrokerUnavailableError as error:
                problems.append(str(error))
                self._connection.abort()
                self._connection = RabbitConnection(
                    self.settings, self, purpose=self._purpose
                )
            else:
                return
        raise BrokerUnavailableError("; ".join(problems))

    def missing_exchange(self, give_up_at: float) -> str:
        """Return why the exchange cannot be used, with the remedy; empty: it can."""
        try:
            self._connection.open_channel(give_up_at)
            find_exchange(self._connection, self.settings, give_up_at)
        except BrokerUnavailableError as error:
            return str(error)
        return ""

    def has_queue(self, name: str, give_up_at: float) -> bool:
        """Return whether a queue exists."""
        try:
            self._connection.open_channel(give_up_at)
            self._connection.call("queue_declare", give_up_at, queue=name, passive=True)
        except BrokerUnavailableError:
            return False
        return True

    def write_problem(self, topic: str, give_up_at: float) -> str:
        """Return why the account may not send messages of a topic; empty: it may.

        The broker checks that also for a message of a transaction, which is undone.
        """
        try:
            self._connection.open_channel(give_up_at)
            self._connection.call("tx_select", give_up_at)
            self._connection.publish(topic, b"", mandatory=False)
            self._connection.call("tx_rollback", give_up_at)
        except BrokerUnavailableError as error:
            return str(error)
        return ""

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    # --- rabbit_connection.Answers: no message is sent --------------------------------

    def on_confirm(self, tag: int, *, multiple: bool, is_ack: bool) -> None:
        """Do nothing."""

    def on_return(self, topic: str, body: bytes, why: str) -> None:
        """Do nothing."""

    def on_lost(self, why: str) -> None:
        """Do nothing: calls have the reason."""
