"""Handlers: what a consumer gives changes to, such as a database or a web service.

`Handler` is the interface; `RetryLater` and `Rejected` are the errors that mean
something to the consumer. Each ready handler is a module, and an example for one's own:

- `json_lines_file`: lines of JSON in a file
- `parquet_files`: Parquet files, one for each table and period
- `sql_upsert`: the tables of another database, kept equal
- `kafka_topics`: flat messages in topics of Kafka
- `webhook`: requests to a web service

`canal_server.client` does not import this package, and importing it loads none of the
ready handlers.
"""

from __future__ import annotations

from canal_server.client.handlers.handler import Handler, Rejected, RetryLater

__all__ = ["Handler", "Rejected", "RetryLater"]
