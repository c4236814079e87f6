"""`payload = arrow`: changes of many tables as Arrow streams inside rows.

Reading ranges is left to `reading`. Only `spark` and `mirror` import it.
"""
