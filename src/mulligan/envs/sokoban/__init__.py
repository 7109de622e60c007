"""Sokoban: push every box onto a goal.

env.py         the environment and its players
moves.py       how a reply says moves, and what they do
views.py       how the agent sees a level
memory.py      what an episode showed, as a digest and as a reflection
levels.py      levels, made by reverse play or read from files
solver.py      positions, and short solutions of them
"""
