"""Solvers for dy/dt = f(t, y) over depth time. Nothing here knows about language."""
