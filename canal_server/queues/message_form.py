"""The form of a destination's messages, as its settings and those of the server ask."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from canal_server import __version__
from canal_server.config.schema import (
    Decimals,
    MessageKeys,
    MessageLayout,
    RegistryConfig,
)
from canal_server.queues.flat_messages import FlatMessages
from canal_server.queues.forms.avro_rows import AvroRows
from canal_server.queues.forms.debezium_rows import DebeziumRows
from canal_server.queues.forms.flat_rows import FlatRows
from canal_server.queues.forms.maxwell_rows import MaxwellRows
from canal_server.queues.packet_messages import PacketMessages
from canal_server.queues.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.config.schema import InstanceConfig, QueueConfig
    from canal_server.queues.producers.queue_producer import Message
    from canal_server.queues.routing import Router

    # Of a batch: its id, its entries as in Messages, the time in ms.
    Encode = Callable[[int, bytes, int], Sequence[Message]]


@dataclass(frozen=True, slots=True)
class MessageForm:
    """What messages look like; where they go is left to `routing`."""

    flat: bool  # not protobuf
    raw: bool  # batches keep their ids if they stay whole
    drops_markers: bool  # begins and ends of transactions
    has_keys: bool = False  # with one row each, as with the next two
    has_tombstones: bool = False
    has_headers: bool = False
    layout: MessageLayout = MessageLayout.CANAL_JSON
    maxwell_output: frozenset[str] = frozenset()
    debezium_name: str = ""
    debezium_schemas: bool = False
    debezium_decimals: Decimals = Decimals.PRECISE
    registry: RegistryConfig = field(default_factory=RegistryConfig)

    @classmethod
    def of(cls, instance: InstanceConfig, queue: QueueConfig) -> MessageForm:
        """Return the form that the settings of a destination ask for."""
        return cls(
            queue.flat,
            instance.store.raw_entry,
            instance.filter.transaction_entry,
            has_keys=queue.keys is MessageKeys.PRIMARY_KEY,
            has_tombstones=queue.tombstones,
            has_headers=queue.headers,
            layout=queue.layout,
            maxwell_output=queue.maxwell_output,
            debezium_name=queue.debezium_name or instance.destination,
            debezium_schemas=queue.debezium_schemas,
            debezium_decimals=queue.debezium_decimals,
            registry=queue.registry,
        )

    def __str__(self) -> str:
        parts = [str(self.layout.value) if self.flat else "protobuf"]
        if self.has_keys:
            parts.append("with keys")
        if self.has_tombstones:
            parts.append("with tombstones")
        if self.has_headers:
            parts.append("with headers")
        return ", ".join(parts)

    @property
    def is_by_event(self) -> bool:
        """Return whether a message has the rows of an event, whatever is in a batch."""
        is_json = self.flat and self.layout is MessageLayout.CANAL_JSON
        return is_json and not self.has_keys and not self.has_headers

    @property
    def needs_transactions(self) -> bool:
        """Return whether a batch should have the ends of its transactions."""
        # CloudEvents number equal changes of a compressed transaction for their ids.
        layouts = {MessageLayout.MAXWELL, MessageLayout.CLOUDEVENTS}
        return self.has_headers or self.layout in layouts

    def registry_client(self) -> SchemaRegistry | None:
        """Return the registry of the schemas, None: there is none.

        It is for one thread at a time.
        """
        is_avro = self.flat and self.layout is MessageLayout.DEBEZIUM_AVRO
        return SchemaRegistry(self.registry) if is_avro else None

    def encoder(self, router: Router, registry: SchemaRegistry | None = None) -> Encode:
        """Return what makes the messages; it is for one thread at a time.

        Messages in Avro need `registry_client`. As in the original, begins and ends of
        transactions are left out where batches are not whole.
        """
        if self.flat and (rows := self._of_rows(router, registry)) is not None:
            return rows
        if self.flat:
            return FlatMessages(router).convert
        whole = router.keeps_batches
        return PacketMessages(
            router,
            has_batch_id=whole and self.raw,
            has_markers=whole and not self.drops_markers,
        ).convert

    def _of_rows(
        self, router: Router, registry: SchemaRegistry | None
    ) -> Encode | None:
        """Return what makes messages with one row, None: they have those of events."""
        options = {
            "has_keys": self.has_keys,
            "has_tombstones": self.has_tombstones,
            "has_headers": self.has_headers,
        }
        if self.layout is MessageLayout.MAXWELL:
            return MaxwellRows(router, output=self.maxwell_output, **options).convert
        if self.layout in {MessageLayout.DEBEZIUM, MessageLayout.CLOUDEVENTS}:
            return DebeziumRows(
                router,
                name=self.debezium_name,
                version=__version__,
                has_schemas=self.debezium_schemas,
                decimals=self.debezium_decimals.value,
                cloud_events=self.layout is MessageLayout.CLOUDEVENTS,
                **options,
            ).convert
        if self.layout is MessageLayout.DEBEZIUM_AVRO:
            assert registry is not None, "the form has a registry"
            return AvroRows(
                router,
                name=self.debezium_name,
                version=__version__,
                decimals=self.debezium_decimals.value,
                id_of=registry.id_of,
                **options,
            ).convert
        if self.has_keys or self.has_headers:
            return FlatRows(router, **options).convert
        return None
