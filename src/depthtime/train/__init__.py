"""Training: the only place with an optimiser."""
