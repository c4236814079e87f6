"""Values as text: numbers, times, JSON documents, addresses, character sets.

Leaves out tables and events.
"""
