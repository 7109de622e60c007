"""Rock-paper-scissors, a match of several throws against an opponent whose habit can be found out."""
