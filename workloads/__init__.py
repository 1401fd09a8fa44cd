"""What the GPUs say: collectives and other generators, all as one schedule of transfers. Pure."""
