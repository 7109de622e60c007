"""Named settings of training runs, as TOML: ``mulligan train --preset cpu``.

The first line of each file is a comment that says in one line what it is for. A preset says only what it changes;
``base = "cpu"`` builds it on another one, and ``[for.sokoban.algo]`` holds where that environment alone is played.
"""
