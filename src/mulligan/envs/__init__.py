"""Worlds, and the scripted players that demonstrate them."""
