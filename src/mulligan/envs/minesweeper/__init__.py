"""MineSweeper: env.py has the rules and the views, player.py the expert, by exact count over all boards that fit."""
