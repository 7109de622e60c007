"""What people type and see: commands, sweeps, benchmarks, the browser, progress. The method does not depend on it."""
