"""What a fabric is: GPUs, switches, links and rates; builders, presets and the scale model.

Pure and free of third-party packages, so that stock Mininet can import it under the system's interpreter.
"""
