"""The columns that tables had at each place in the binlog."""
