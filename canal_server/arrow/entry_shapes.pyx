# cython: language_level=3, cdivision=True
"""The columns of a table's rows, parsed once and recognized from then on.

Each column of each row repeats its index, name and types. From row to row only the
value and a few bits before it change; so the bytes around the value are stored per
