"""What a fabric takes to build and to run: switches, transceivers and cables as exact counts, then money and watts."""
