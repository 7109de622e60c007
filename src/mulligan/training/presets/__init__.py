"""Named settings of training runs, as TOML: ``mulligan train --preset cpu``."""
