"""Models: what turns messages into tokens, the small model of the demo and the tests, and loading and saving."""
