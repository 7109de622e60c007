"""Kuhn poker: env.py has the rules and the opponents, player.py the experts and their reflections."""
