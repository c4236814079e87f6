"""Passwords that are not written into the settings: from files, commands, encrypted.

Leaves out which settings have them (`canal_server.config`), and what they are used for.
Every package above `model` may import it. No text of this package has a password in it.
"""
