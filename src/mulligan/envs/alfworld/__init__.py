"""ALFWorld: household tasks in text.

env.py         the environment: parameters, observations, memory
views.py       the same game in TextWorld's words, in fewer, or in cells
memory.py      what an episode showed, as a digest and as a reflection
player.py      the expert
game.py        the rules: one game in a world
world.py       a household: what all games of one problem share
plan.py        the shortest way to the goal, and how far along a game is
goal.py        the six kinds of task
pddl.py        problems, read and written
canonical.py   what makes two games the same world
games.py       the official games: files, read and checked
choice.py      which official game a task plays, and for which set it is
generate.py    new games
oracle.py      TextWorld on the same games, to compare with
"""
