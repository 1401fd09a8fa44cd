"""The live page of a fabric: what is drawn, what is told to viewers, what is recorded, and the server of it."""
