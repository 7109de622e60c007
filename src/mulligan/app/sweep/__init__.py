"""Training runs that are compared: arms from shared warm starts, side by side, each evaluated by one protocol."""
