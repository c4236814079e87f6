"""The transaction ring buffer between the decoder and the sink."""
