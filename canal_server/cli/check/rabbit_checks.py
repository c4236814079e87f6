"""Checks of RabbitMQ: a broker that answers, the account, the exchange, queues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from canal_server.cli.check.queue_results import QUEUE, TOPICS, skipped_topics
from canal_server.delivery.queue_delivery import routing_of
from canal_server.delivery.queue_kinds import located, purpose_of
from canal_server.errors import CanalError, ConfigError
from canal_server.model.check_results import CheckResult, fail, ok, warn
from canal_server.queues.producers.queue_producer import BrokerUnavailableError
from canal_server.queues.producers.rabbit_probe import RabbitProbe
from canal_server.queues.producers.rabbit_settings import rabbit_settings
from canal_server.queues.routing import Router

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.config.schema import DaemonConfig, InstanceConfig, QueueConfig

ANSWER_S: Final = 10.0


def check_rabbit(config: DaemonConfig, server: str) -> Iterator[CheckResult]:
    """Yield what is found; nothing is declared or sent.

    `server` is the subject of what concerns no single destination.
    """
    queue = config.server.queue
    try:
        with located(queue):
            settings = rabbit_settings(dict(queue.properties))
        probe = RabbitProbe(settings, purpose=purpose_of(queue))
    except ConfigError as error:
        yield from (fail(QUEUE, each).of(server) for each in error.problems)
        yield from skipped_topics(config, "exchange and topics")
        return
    except CanalError as error:
        yield fail(QUEUE, str(error)).of(server)
        yield from skipped_topics(config, "exchange and topics")
        return
    try:
        probe.open(time.monotonic() + ANSWER_S)
    except BrokerUnavailableError as error:
        yield fail(QUEUE, str(error)).of(server)
        yield from skipped_topics(config, "exchange and topics")
    else:
        account = f"account {settings.username} may log in"
        where = f"{queue.mode.value} at {settings.servers} answers"
        yield ok(QUEUE, f"{where}, {account}").of(server)
        exchange = _check_exchange(probe)
        yield exchange.of(server)
        for instance in config.instances:
            for each in _check_topics(instance, queue, probe):
                yield each.of(instance.destination)
    finally:
        probe.close()


def _check_exchange(probe: RabbitProbe) -> CheckResult:
    settings = probe.settings
    name = settings.exchange
    if not name:
        return ok(QUEUE, "messages go to queues with the names of topics")
    why = probe.missing_exchange(time.monotonic() + ANSWER_S)
    if not why:
        return ok(QUEUE, f"exchange {name} exists")
    if settings.declares_exchange:
        kind = settings.exchange_type
        return ok(QUEUE, f"exchange {name} will be declared, of type {kind}")
    return fail(QUEUE, why)


def _check_topics(
    instance: InstanceConfig, queue: QueueConfig, probe: RabbitProbe
) -> Iterator[CheckResult]:
    try:
        router = Router(routing_of(instance, queue))
    except ConfigError as error:
        yield from (fail(TOPICS, each) for each in error.problems)
        return
    notes = [queue.too_large_topic] if queue.too_large_topic else []
    for name in dict.fromkeys([*router.fixed_topics(), *notes]):
        give_up_at = time.monotonic() + ANSWER_S
        if why := probe.write_problem(name, give_up_at):
            yield fail(TOPICS, why)
        elif probe.settings.exchange:
            yield ok(TOPICS, f"topic {name}: the account may write")
        elif name == probe.settings.queue or probe.has_queue(name, give_up_at):
            yield ok(TOPICS, f"topic {name}: its queue exists, or will be declared")
        else:
            yield warn(
                TOPICS,
                f"topic {name}: there is no queue of this name: create it, or set"
                " rabbitmq.exchange",
            )
