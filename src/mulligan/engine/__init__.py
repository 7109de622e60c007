"""Sampling: many sequences of one model at once, continuously batched."""
