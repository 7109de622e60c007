"""From trials to better weights.

The package carries the name of the function `mulligan.train`, which importing any of its modules would hide; so the
package itself can be called and does what the function does.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    def __call__(self, *given: Any, **options: Any) -> Any:
        """`mulligan.api.train`."""
        train: Any = sys.modules["mulligan.api"].train
        return train(*given, **options)


sys.modules[__name__].__class__ = _Package
