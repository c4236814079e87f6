"""Tables in the lake as Delta tables, by delta-rs."""
