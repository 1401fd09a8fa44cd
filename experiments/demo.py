"""The main job: the catalogue's ``first-light`` on live fabrics."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.emulated import emulator_backend
from experiments.run import Progress, Results, run_scenario
from experiments.scenario import load_scenario

SCENARIO = Path(__file__).parent / "catalogue" / "first-light.yaml"


def run_demo(results_root: Path, progress: Progress) -> Results:
    """Run the demo and store its results under ``results_root``; raises RailbedError where it cannot be run."""
    with emulator_backend(progress) as backend:
        return run_scenario(
            load_scenario(SCENARIO),
            backend,
            progress,
            results_root=results_root,
            command=sys.argv,
            extra_provenance=backend.provenance_now,
        )
