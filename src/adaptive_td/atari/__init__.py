"""Atari games: policies from Q-networks, how they are trained, and logs of their play."""
