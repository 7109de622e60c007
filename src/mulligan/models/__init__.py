"""Models: what turns messages into tokens, the small model of the demo and the tests, and loading and saving.

Everything here needs the extra ``train``; nothing outside imports it before it is asked for.
"""
