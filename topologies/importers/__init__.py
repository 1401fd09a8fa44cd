"""Readers of files that describe a real fabric: what it is, whether it has rails, which cables break them."""
