"""The columns and schemas that Spark sees, derived from MySQL columns.

Converting values is left to `reading`. Only `spark` and `mirror` import it.
"""
