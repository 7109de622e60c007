"""Tic-Tac-Toe: env.py has the rules, their solution and the opponents, player.py the experts and their reflections."""
