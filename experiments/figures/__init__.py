"""Figures fit for a paper, one module per figure; each is a pure function of results."""
