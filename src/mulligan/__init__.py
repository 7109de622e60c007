"""Mulligan: language agents that get better from one attempt to the next."""
