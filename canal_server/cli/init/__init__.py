"""`canal-server init`: a conf folder to start with. Only `cli` imports this package."""
