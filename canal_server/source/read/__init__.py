"""One read of a binlog: from a server or from files, event by event, to an end."""
