"""The event store: one ring of an instance's entries and a cursor per client."""
