"""The mirror as a whole: the tables wanted, their copies, and the stream."""
