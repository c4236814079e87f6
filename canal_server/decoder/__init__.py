"""Binlog bytes become blocks of entries; compiled, but for the plan of a table."""
