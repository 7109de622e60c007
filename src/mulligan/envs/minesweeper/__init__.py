"""MineSweeper: reveal with cascade, on a board that the seed fixes before the first click.

env.py         the environment: rules, views, memory
player.py      the expert, by exact count over all boards that fit
"""
