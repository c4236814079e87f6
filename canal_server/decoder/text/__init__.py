"""Values as text: numbers, times, JSON documents, addresses, character sets.

Knows nothing of tables and events.
"""
