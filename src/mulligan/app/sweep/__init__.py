"""Training runs that are compared: arms from shared warm starts, side by side, each evaluated by one protocol.

arms.py      what an arm is, what has to be done in which order, and whether the file still says so
worker.py    one arm in a process of its own: train, evaluate, write the result
schedule.py  the processes: as many as there are cores for, in order, ended together
rows.py      results of arms and evaluations as rows of a table
compare.py   rows side by side, over seeds
"""
