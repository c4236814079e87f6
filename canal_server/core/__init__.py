"""Compiled values that decoder, buffer, sink and store share."""
