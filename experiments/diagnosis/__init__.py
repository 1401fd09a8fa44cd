"""Faults injected on purpose, the diagnosis of runs, and how well the one finds the other."""
