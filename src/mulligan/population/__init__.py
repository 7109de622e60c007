"""Several agents in one run, which meet each other."""
