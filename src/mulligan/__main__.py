"""``python -m mulligan`` is ``mulligan``."""

from mulligan.cli import main

if __name__ == "__main__":
    main()
