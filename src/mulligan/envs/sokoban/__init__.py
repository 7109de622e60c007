"""Sokoban: push every box onto a goal.

env.py         the environment
moves.py       how a reply says moves, and what they do
views.py       how the agent sees a level
levels.py      levels, made by reverse play or read from files
solver.py      positions, and short solutions of them
planner.py     scripted players
reflection.py  what they write between two episodes
"""
