"""``python -m controller``."""

import os
import sys

from controller.main import main

code = main()
sys.stdout.flush()
sys.stderr.flush()
# The framework's threads would keep the process alive.
os._exit(code)
