"""Reading for as long as the process lives: the pump of a destination's source."""
