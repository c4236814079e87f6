"""Topics and partitions of changes, by `canal.mq.dynamicTopic`, `partitionHash` etc.

The rules are those of the original. The expressions have the syntax of table filters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.errors import ConfigError
from canal_server.filters.table_filters import compile_expression
from canal_server.queues.table_routes import Route

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from canal_server.config.schema import RoutingConfig

_NO_HASH, _BY_TABLE, _BY_KEY, _BY_COLUMNS = range(4)  # as in table_routes
_KEY: Final = "$pk$"
_SEPARATORS: Final = re.compile("[,;]")
_IS_REGEX: Final = re.compile(r"[*?+|(){}\[\]\\$^]")
_OF_TABLES: Final = "\\."  # in an expression for schema.table, not for a schema


class Router:
    """Finds the route of each table. Raises ConfigError for invalid settings."""

    def __init__(self, settings: RoutingConfig) -> None:
        """Compile the expressions."""
        self._settings = settings
        problems: list[str] = []
        self._topics = list(_topics(settings.dynamic_topic, problems))
        self._hashes = list(_hashes(settings.partition_hash, problems))
        self._counts = list(_counts(settings.dynamic_topic_partitions, problems))
        if problems:
            raise ConfigError(problems)

    def __call__(self, schema: str, table: str) -> Route:
        """Return the route of a table; of a statement on none, with empty names."""
        topic = self._topic(schema, table)
        partitions = self.partitions_of(topic)
        name = f"{schema}.{table}"
        if not self._hashes:
            return Route(topic, partition=self._settings.partition)
        for each in self._hashes:
            if each.has(name):
                break
        else:
            return Route(topic)
        if each.mode == _BY_TABLE:
            return Route(topic, mode=_BY_TABLE, partitions=partitions, hashed=table)
        hashed = schema if self._settings.database_hash else ""
        return Route(
            topic,
            mode=each.mode,
            partitions=partitions,
            columns=each.columns,
            hashed=hashed,
        )

    @property
    def keeps_batches(self) -> bool:
        """Return whether all entries of a batch go to one partition of one topic."""
        return not self._topics and not self._hashes

    def fixed_topics(self) -> list[str]:
        """Return the topics that are known by name, not by those of tables."""
        named = [each.topic.replace(".", "_") for each in self._topics if each.topic]
        default = self._settings.topic
        return [default.replace(".", "_") if self._topics else default, *named]

    def _topic(self, schema: str, table: str) -> str:
        default = self._settings.topic
        if not self._topics:
            return default
        found = default
        if schema and table:
            found = next(
                self._named(f"{schema}.{table}"),
                next(self._named(schema), default),
            )
        return found.replace(".", "_")

    def _named(self, name: str) -> Iterator[str]:
        for each in self._topics:
            if each.has(name):
                yield each.topic or name.lower()

    def unmatched(
        self, tables: Collection[tuple[str, str]], topics: Collection[str]
    ) -> Unmatched:
        """Return which items match none of some tables, or none of some topics."""
        names = [f"{schema}.{table}" for schema, table in tables]
        schemas = {schema for schema, _ in tables}
        return Unmatched(
            tuple(
                each.item
                for each in self._topics
                if not any(map(each.has, (*schemas, *names)))
            ),
            tuple(each.item for each in self._hashes if not any(map(each.has, names))),
            tuple(each.item for each in self._counts if not any(map(each.has, topics))),
        )

    def partitions_of(self, topic: str) -> int:
        """Return how many partitions a topic has by the settings."""
        for each in self._counts:
            if each.has(topic):
                return each.partitions
        return self._settings.partitions


class Unmatched(NamedTuple):
    """Items of the settings that match nothing, as they are written."""

    topics: tuple[str, ...]  # of canal.mq.dynamicTopic
    hashes: tuple[str, ...]  # of canal.mq.partitionHash
    counts: tuple[str, ...]  # of canal.mq.dynamicTopicPartitionNum


@dataclass(frozen=True, slots=True)
class _Names:
    """A name, or an expression for names."""

    text: str
    regex: Callable[[str], bool] | None

    @classmethod
    def of(cls, text: str) -> _Names:
        """Compile an expression. Raises ValueError."""
        regex = None
        if _IS_REGEX.search(text):
            regex = compile_expression(text, default=False)
        return cls(text.lower(), regex)

    @property
    def is_regex(self) -> bool:
        return self.regex is not None

    def has(self, name: str) -> bool:
        if self.regex is None:
            return self.text == name.lower()
        return self.regex(name)


@dataclass(frozen=True, slots=True)
class _Topic:
    item: str
    names: _Names
    of_tables: bool
    topic: str  # empty: the name itself

    def has(self, name: str) -> bool:
        # The original takes a schema with a point for a table.
        if self.names.is_regex and self.of_tables != ("." in name):
            return False
        return self.names.has(name)


@dataclass(frozen=True, slots=True)
class _Hash:
    item: str
    names: _Names
    mode: int
    columns: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        return self.names.has(name)


@dataclass(frozen=True, slots=True)
class _Count:
    item: str
    names: _Names
    partitions: int

    def has(self, name: str) -> bool:
        return self.names.has(name)


def _items(text: str) -> list[str]:
    return [each.strip() for each in _SEPARATORS.split(text) if each.strip()]


def _topics(text: str, problems: list[str]) -> Iterator[_Topic]:
    for item in _items(text):
        topic, colon, expression = item.partition(":")
        if not colon:
            topic, expression = "", item
        try:
            names = _Names.of(expression)
        except ValueError as error:
            problems.append(f"canal.mq.dynamicTopic: {item}: {error}")
            continue
        yield _Topic(item, names, _OF_TABLES in expression, topic)


def _hashes(text: str, problems: list[str]) -> Iterator[_Hash]:
    for item in _items(text):
        expression, colon, columns = item.rpartition(":")
        if not colon:
            expression = item
        try:
            names = _Names.of(expression)
        except ValueError as error:
            problems.append(f"canal.mq.partitionHash: {item}: {error}")
            continue
        if not colon:
            yield _Hash(item, names, _BY_TABLE)
        elif columns.lower() == _KEY:
            yield _Hash(item, names, _BY_KEY)
        else:
            named = tuple(each.lower() for each in columns.split("^") if each)
            yield _Hash(item, names, _BY_COLUMNS, named)


def _counts(text: str, problems: list[str]) -> Iterator[_Count]:
    for item in _items(text):
        key = "canal.mq.dynamicTopicPartitionNum"
        expression, colon, number = item.rpartition(":")
        if not (colon and number.strip().isdecimal() and int(number) > 0):
            problems.append(f"{key}: {item}: write topic:number")
            continue
        try:
            names = _Names.of(expression)
        except ValueError as error:
            problems.append(f"{key}: {item}: {error}")
            continue
        yield _Count(item, names, int(number))
