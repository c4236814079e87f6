"""Where in a binlog reading begins: positions, times, GTID sets, purged files."""
