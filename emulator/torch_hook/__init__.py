"""What runs inside a PyTorch job under `railbed exec --telemetry`: a folder for its ``PYTHONPATH``."""
