"""The PySpark source: changes as Arrow record batches. Needs the extra `spark`.

Talking to servers is left to `client`. Only `mirror` and `pyspark_canal` import it.
"""
