"""The HTTP port for people and orchestrators: a page, a REST interface, health checks.

Leaves out what is done (`canal_server.web.server_operations` is a port that the daemon
implements) and the metrics (`canal_server.observe`). Only the daemon may import it.
"""
