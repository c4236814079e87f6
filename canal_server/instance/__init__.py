"""One destination, wired: `instance` is the whole, `stages` what entries pass.

`client_positions` has where clients are and where pumps resume. Leaves out requests of
clients, acks included (`server.service`).
"""
