"""Reading a crash log: which lines matter, which process wrote them, which error began the fall, and what the log states."""
