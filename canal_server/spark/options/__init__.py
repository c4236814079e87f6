"""The input of a reader: its options, its offsets, and the servers it uses.

Planning and reading are left to the rooms above. Only `spark` and `mirror` import it.
"""
