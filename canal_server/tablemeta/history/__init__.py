"""The table history by position: the TSDB, its replay, the log of a table."""
