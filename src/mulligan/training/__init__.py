"""From trials to better weights."""
