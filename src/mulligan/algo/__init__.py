"""The mathematics of Mulligan: pure functions from rewards to returns, advantages and a loss.

credit.py      what each turn and reflection is worth: returns across the episodes of a trial
batch.py       the steps of one update as flat arrays
build.py       makes them from groups of trials, with the penalties on invalid and long replies
normalise.py   what is remembered from earlier updates: running baselines, and each agent's own spread
advantage/     one estimator a file, chosen by name
loss.py        the clipped policy loss, per sampled token (needs torch; nothing else here does)
arrays.py      the few array operations they share

Axis letters as in `mulligan.types`; in flat arrays `step` counts turns and reflections together, in order of play.
"""
