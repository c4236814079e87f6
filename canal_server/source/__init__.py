"""Reading a source: one read, the schemas there, where to begin, and the pump.

`read`, `schema`, `begin` and `pump` each may import those before it.
"""
