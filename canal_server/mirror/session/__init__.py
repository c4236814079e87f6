"""The Spark session of a mirror, and its jobs."""
