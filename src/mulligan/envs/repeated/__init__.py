"""Games in which two choose at the same time, again and again: what `rps` and `dilemma` share."""
