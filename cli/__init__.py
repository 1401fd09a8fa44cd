"""The command line ``railbed``: one module per command."""
