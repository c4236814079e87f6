"""One destination, wired: the only package where its stages meet."""
