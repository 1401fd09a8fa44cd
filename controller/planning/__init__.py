"""Traffic planning: which path every channel of every declared connection takes, and how many bytes it carries."""
