"""WebShop: find the product that an instruction asks for, and buy it.

env.py           the environment: pages, clicks, searches
compact.py       its view in few words
memory.py        what an episode showed, as a digest and as a reflection
player.py        the expert
first_listed.py  a rule that buys by the order of a list
names.py         the names of a kind that shoppers know
reward.py        what a purchase is worth
choice.py        which shop and which goal a task asks for
catalogue.py     products and goals
search.py        full-text search
people.py        the goals that people wrote
files.py         the original's files, and where what was made of them is kept
generate.py      a made-up catalogue of any size
words.py         what its products are made of
tiny.py          a catalogue for the smallest models
"""
