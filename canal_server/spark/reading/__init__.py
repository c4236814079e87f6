"""The work of Spark tasks: read ranges, and produce Arrow record batches.

Planning the ranges is left to `driver` and `batch_reader`. Only `spark` and `mirror`
import it.
"""
