"""Messages with one row each: canal-json with keys, Maxwell's, Debezium's, Avro.

Leaves out how many rows are sent at a time, and to whom. Only `queues` imports it.
"""
