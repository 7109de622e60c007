"""Honest evaluation: p@k, intervals, controls, evidence, costs."""
