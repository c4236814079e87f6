"""Where clients and the pump stand, and what of it outlives the process."""
