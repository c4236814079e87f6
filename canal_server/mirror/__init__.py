"""The mirror: copies of tables in a lake, kept up to date by a Spark pipeline."""
