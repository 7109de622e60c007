"""One trial: N episodes on a task, with memory and reflections between them."""
