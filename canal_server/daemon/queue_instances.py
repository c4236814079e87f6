"""Makes instances whose changes are delivered to a message queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.delivery.queue_delivery import check_routing, stored_positions

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import InstanceConfig, QueueConfig
    from canal_server.daemon.destination_life import Instance, MakeInstance
    from canal_server.delivery.position_waits import PositionWaits
    from canal_server.ports import MetaManager
    from canal_server.runtime.lifecycle import Stop


def for_queue(
    make_instance: MakeInstance, queue: QueueConfig, waits: PositionWaits
) -> MakeInstance:
    """Return what makes instances whose messages have valid topics.

    They begin where the message queue says, if it has positions; `waits` shows why one
    does not begin yet.
    """

    def make(
        config: InstanceConfig,
        *,
        held: Callable[[], bool],
        on_loaded: Callable[[MetaManager, Stop], None] | None = None,
    ) -> Instance:
        check_routing(config, queue)
        found = on_loaded or stored_positions(config, queue, waits.note)
        if found is None:
            return make_instance(config, held=held)
        return make_instance(config, held=held, on_loaded=found)

    return make
