"""The PySpark source: changes as Arrow record batches. Needs the extra `spark`."""
