"""The keys of message queues: of the server, and of a destination's topics."""

from __future__ import annotations

from canal_server.config import values
from canal_server.config.keys.setting import Key
from canal_server.config.values import INT32_MAX

PARTITIONS_MAX = 100_000

QUEUE_KEYS = (
    Key(
        "canal.mq.flatMessage",
        "queue.flat",
        values.boolean,
        "The form of messages: `true` is [canal-json](../howto/tail.md#flat-messages),"
        " `false` [protobuf](../howto/message-queues.md#messages-in-protobuf), for"
        " consumers with the Java original's library.",
    ),
    Key(
        "canal.mq.canalBatchSize",
        "queue.batch_size",
        values.integer(1, INT32_MAX),
        "How much is taken from the ring at a time: KiB, or entries with"
        " [`ITEMSIZE`](#canalinstancememorybatchmode). If it is KiB, and messages"
        " do not depend on it (canal-json without keys and headers), at least 512, or a"
        " quarter of the ring if that is less.",
    ),
    Key(
        "canal.mq.database.hash",
        "queue.database_hash",
        values.boolean,
        "Whether the name of the database is part of the hash of columns, see"
        " [`canal.mq.partitionHash`](#canalmqpartitionhash).",
    ),
    Key(
        "canal.mq.form",
        "queue.layout",
        values.message_layout,
        "How messages look, unless they are protobuf:"
        " [canal-json](../howto/tail.md#flat-messages), or the JSON of"
        " [Maxwell](../howto/message-forms.md#maxwell) or"
        " [Debezium](../howto/message-forms.md#debezium), also in the envelope of"
        " [CloudEvents](../howto/message-forms.md#cloudevents), or"
        " [Debezium's in Avro](../howto/message-forms.md#avro), with one row in each.",
        ours=True,
    ),
    Key(
        "canal.mq.maxwell.output",
        "queue.maxwell_output",
        values.maxwell_output,
        "What messages in the form of Maxwell have in addition, as its settings"
        " `output_…` name it; `ddl` sends statements as well.",
        ours=True,
    ),
    Key(
        "canal.mq.debezium.name",
        "queue.debezium_name",
        values.text,
        "The name of the source in messages in the form of Debezium, as its setting"
        " `topic.prefix`. Empty means the name of the destination.",
        ours=True,
    ),
    Key(
        "canal.mq.debezium.schemas.enable",
        "queue.debezium_schemas",
        values.boolean,
        "`true` has keys and values in the form of Debezium contain their schemas, as"
        " the JSON converter of Kafka Connect expects it.",
        ours=True,
    ),
    Key(
        "canal.mq.debezium.decimal.handling.mode",
        "queue.debezium_decimals",
        values.decimals,
        "How messages in the form of Debezium have a DECIMAL: as bytes (in JSON, in"
        " base64), as a text, or as a number.",
        ours=True,
    ),
    Key(
        "canal.mq.schema.registry.url",
        "queue.registry.urls",
        values.web_urls,
        "The addresses of the registry of schemas for `canal.mq.form = debezium-avro`,"
        " which has the interface of Confluent's, with its path, such as"
        " `http://registry:8081`. The next one is asked if one does not answer.",
        ours=True,
    ),
    Key(
        "canal.mq.schema.registry.user",
        "queue.registry.user",
        values.text,
        "The user at the registry (HTTP Basic). Empty means no login.",
        ours=True,
    ),
    Key(
        "canal.mq.schema.registry.password",
        "queue.registry.password",
        values.text,
        "The password of that user.",
        ours=True,
        secret=True,
        has_forms=True,
        is_late=True,
    ),
    Key(
        "canal.mq.schema.registry.caFile",
        "queue.registry.ca_file",
        values.folder,
        "The certificates of the authorities that sign the registry's certificate, a"
        " PEM file. Empty means those of the system.",
        ours=True,
    ),
    Key(
        "canal.mq.schema.registry.certFile",
        "queue.registry.cert_file",
        values.folder,
        "The certificate of this server, for a registry that asks for one, a PEM file.",
        ours=True,
    ),
    Key(
        "canal.mq.schema.registry.keyFile",
        "queue.registry.key_file",
        values.folder,
        "The private key of that certificate, a PEM file without a pass phrase. Empty"
        " means that it is in `canal.mq.schema.registry.certFile`.",
        ours=True,
    ),
    Key(
        "canal.mq.schema.registry.subject.name.strategy",
        "queue.registry.subjects",
        values.subject_names,
        "Under which subject a schema is in the registry, as Confluent's clients name"
        " it: that of the topic with `-key` or `-value`, of the record, or of both."
        " Topics of several tables need one of the latter.",
        ours=True,
    ),
    Key(
        "canal.mq.schema.registry.auto.register.schemas",
        "queue.registry.registers",
        values.boolean,
        "`false` only looks schemas up in the registry; delivery stops at one that is"
        " not there.",
        ours=True,
    ),
    Key(
        "canal.mq.keys",
        "queue.keys",
        values.message_keys,
        "What messages to Kafka or Pulsar have as their keys. With `primaryKey`, each"
        " message has [one row, and its primary key](../howto/message-keys.md).",
        ours=True,
    ),
    Key(
        "canal.mq.tombstones",
        "queue.tombstones",
        values.boolean,
        "`true` sends a message without a value after each deletion, so that a"
        " [compacted topic](../howto/message-keys.md#compacted-topics) forgets the"
        " key.",
        ours=True,
    ),
    Key(
        "canal.mq.headers",
        "queue.headers",
        values.boolean,
        "`true` gives messages to Kafka or Pulsar"
        " [headers](../howto/message-keys.md#headers) with the position, the GTID and"
        " the transaction; each has one row then.",
        ours=True,
    ),
    Key(
        "canal.mq.serveClients",
        "queue.serves_clients",
        values.boolean,
        "`true` opens the port for clients as well. They cannot use the client id 1001,"
        " which is that of the message queue.",
        ours=True,
    ),
    Key(
        "canal.mq.tooLargeTopic",
        "queue.too_large_topic",
        values.text,
        "The topic for [notes about messages that are too large for the"
        " broker](../howto/message-queues.md#messages-that-are-too-large), which are"
        " left out then. Empty means that delivery of the destination stops.",
        ours=True,
    ),
    Key(
        "canal.mq.exactlyOnce",
        "queue.exactly_once",
        values.boolean,
        "`true` sends to Kafka in"
        " [transactions](../howto/message-queues.md#exactly-once), which contain the"
        " position in the binlog: consumers that read committed messages only see each"
        " change once.",
        ours=True,
    ),
    Key(
        "canal.mq.positionTopic",
        "queue.position_topic",
        values.text,
        "The beginning of the names of the topics that have the positions with"
        " `canal.mq.exactlyOnce`; a dot and the name of the destination follow. Servers"
        " that share brokers, but not their destinations, need different ones.",
        ours=True,
    ),
    Key(
        "canal.mq.topics.create",
        "queue.create_topics",
        values.boolean,
        "`true` creates a topic that is missing, with as many partitions as"
        " `canal.mq.partitionsNum` or `canal.mq.dynamicTopicPartitionNum` says.",
        ours=True,
    ),
    Key(
        "canal.mq.topics.replicas",
        "queue.topic_replicas",
        values.replicas,
        "The number of replicas of a created topic. -1 means the default of the"
        " brokers.",
        ours=True,
    ),
    Key(
        "canal.mq.topics.settings",
        "queue.topic_settings",
        values.pairs,
        "Settings of a created topic, such as"
        " `retention.ms=604800000,max.message.bytes=10485760`.",
        ours=True,
    ),
)

ROUTING_KEYS = (
    Key(
        "canal.mq.topic",
        "routing.topic",
        values.text,
        "The topic of all changes that `canal.mq.dynamicTopic` does not match. Empty"
        " means the name of the destination.",
    ),
    Key(
        "canal.mq.partition",
        "routing.partition",
        values.integer(0, PARTITIONS_MAX),
        "The partition of all messages, unless `canal.mq.partitionHash` is set.",
    ),
    Key(
        "canal.mq.partitionsNum",
        "routing.partitions",
        values.integer(1, PARTITIONS_MAX),
        "How many partitions a topic has, for `canal.mq.partitionHash`.",
    ),
    Key(
        "canal.mq.partitionHash",
        "routing.partition_hash",
        values.text,
        "Which partition the rows of a table go to: items, separated by commas, of"
        " which the first one counts that matches. `database.table` is the hash of the"
        " table's name, `database.table:id^name` that of the values of these columns,"
        " `database.table:$pk$` that of the primary key; the part before the colon may"
        " be a regular expression. Other tables go to partition 0.",
    ),
    Key(
        "canal.mq.dynamicTopic",
        "routing.dynamic_topic",
        values.text,
        "Topics of tables: items, separated by commas, of which the first one counts"
        " that matches. `topic:expression` is a name and the tables or databases of"
        " that topic. An expression alone makes a topic of each, with a name in lower"
        " case: `database_table` for an expression with `\\\\.`, or the name of the"
        " database. A `.` in the name of a topic becomes `_`.",
    ),
    Key(
        "canal.mq.dynamicTopicPartitionNum",
        "routing.dynamic_topic_partitions",
        values.text,
        "How many partitions single topics have, instead of `canal.mq.partitionsNum`:"
        " `topic:number`, separated by commas; the topic may be a regular expression.",
    ),
)
