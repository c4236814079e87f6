"""The mirror: copies of tables in a lake, kept up to date by a Spark pipeline.

`run` starts it. First copies are made by `copy`; changes pass `follow`, then `lake`.
Leaves out how Spark reads changes (`canal_server.spark`).
"""
