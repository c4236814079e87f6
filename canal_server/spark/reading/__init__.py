"""What tasks of Spark do: read ranges, and give record batches of Arrow."""
