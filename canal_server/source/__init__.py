"""Reading a source: one read, the schemas there, where to begin, checks, the pump.

`read`, `schema`, `begin`, `check` and `pump` each may import those before it.
"""
