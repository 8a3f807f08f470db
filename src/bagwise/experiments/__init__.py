"""One file an experiment: run(...) -> table. They use the public API and hold no mathematics."""
