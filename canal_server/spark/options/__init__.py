"""What a reader is asked for: its options, its offsets, and the servers it finds."""
