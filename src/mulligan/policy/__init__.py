"""Who plays: programs, people, endpoints, models in this process."""
