"""The process: destinations and their lives, the conf folder, the control socket."""
