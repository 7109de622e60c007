"""The mathematics of Mulligan: pure functions from rewards to returns, advantages and a loss.

Axis letters as in `mulligan.types`; in flat arrays `step` counts turns and reflections together, in order of play.
"""
