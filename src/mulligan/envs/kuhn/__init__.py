"""Kuhn poker: three cards, one bet, one hidden card; against an opponent whose habits can be learned."""
