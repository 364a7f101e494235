"""Measurements on finished or untrained models: step times, gradients, other solvers, decoding. Neighbour of train."""
