"""Who is at fault when a collective hangs or is slow: telemetry in, verdicts with their evidence out. Pure."""
