"""Files and flags to plain values, with the place of each."""
