"""Training runs that are compared: arms from shared warm starts, side by side, each evaluated by one protocol.

arms.py      what an arm is, and what has to be done in which order
warm.py      what a warm start depends on, and so which arms share one
match.py     whether what an earlier process found is what is planned now
worker.py    one arm in a process of its own: train, evaluate, write what was found
schedule.py  the processes: as many as there are cores for, in order, ended together
results.py   what the arms found, over seeds, as data and as a table
"""
