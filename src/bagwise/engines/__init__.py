"""Where the sums over row groups are made, beyond the cores of one machine."""
