"""The journal of an agent whose model stays frozen: what earlier episodes taught, and proof that it helps."""
