"""Makes ``python -m cli`` the same as ``railbed``."""

from cli.main import main

main()
