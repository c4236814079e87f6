"""`canal-server status`: the command, its checks, its texts."""
