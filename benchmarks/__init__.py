"""How fast training is, beside the ways people would write it themselves: `make bench`."""
