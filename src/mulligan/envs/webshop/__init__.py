"""WebShop: find the product that an instruction asks for, and buy it.

env.py           the environment: parameters, parser, canonical key
session.py       pages, clicks, searches
views.py         pages in words, and in few words
memory.py        what an episode showed, as a digest and as a reflection
player.py        the expert
first_listed.py  a rule that buys by the order of a list
reward.py        what a purchase is worth
choice.py        which shop and which goal a task asks for
catalogue.py     products and goals
search.py        full-text search
files.py         the original's files, and the cache of what was made of them
generate.py      a made-up catalogue of any size
words.py         what its products are made of
tiny.py          a catalogue for the smallest models
"""
