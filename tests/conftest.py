"""One thread for each test process: two of them share the cores, and tiny models gain nothing from more.

Nothing is said of how long a test takes: machines are slow at times.
"""

import os
from contextlib import suppress

os.environ.setdefault("OMP_NUM_THREADS", "1")
with suppress(ModuleNotFoundError):  # the comparison with TextWorld has an installation of its own
    from hypothesis import HealthCheck, settings

    settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")
