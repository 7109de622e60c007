"""What ``vf-eval mulligan-verifiers`` loads: verifiers finds plug-ins by the name of a package of their own."""

from mulligan.verifiers import MulliganEnv, MulliganTaskset

__all__ = ["MulliganEnv", "MulliganTaskset"]
