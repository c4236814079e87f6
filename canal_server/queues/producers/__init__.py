"""Sending messages to brokers: one module for each kind, behind one contract.

Leaves out what messages contain. The handlers of `client` and `delivery` import it.
"""
