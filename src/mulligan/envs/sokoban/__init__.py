"""Sokoban: push every box onto a goal.

env.py         the environment, its memory and its players
levels.py      levels, made by reverse play or read from files
solver.py      positions, and short solutions of them
"""
