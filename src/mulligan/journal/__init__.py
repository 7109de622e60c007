"""The journal: what earlier attempts of a frozen agent taught, and the proof that it helps."""
