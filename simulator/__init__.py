"""Back end 2: the same fabric and schedule as a fluid (max-min fair) flow-level model."""
