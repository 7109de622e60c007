"""One thread for each test process: two of them share the cores, and tiny models gain nothing from more."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
