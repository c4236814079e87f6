"""The port for canal-admin: its protocol, and what it may do here.

canal-admin is the web application of alibaba/canal that manages servers. Leaves out
settings that canal-admin hands out.
"""
