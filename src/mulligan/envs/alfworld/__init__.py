"""ALFWorld: household tasks in text.

env.py       the environment: parameters, parser, transition, canonical key
views.py     the same game in TextWorld's words, in fewer, or in cells
memory.py    what an episode showed, as a digest and as a reflection
player.py    the expert
game.py      the rules: one game in a world
world.py     a household: what all games of one problem share
plan.py      the shortest way to the goal, and how far along a game is
goal.py      the six kinds of task
pddl.py      problems, read and written
games.py     the official games: files, read and checked, which one a task plays, and for which set it is
generate.py  new games
"""
