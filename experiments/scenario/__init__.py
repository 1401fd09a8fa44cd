"""Scenarios: one YAML file for a whole experiment, typed and checked."""

from experiments.scenario.failures import AUTO
from experiments.scenario.model import EMULATOR, SIMULATOR, Scenario
from experiments.scenario.reading import Setting, load_scenario, parse_scenario, parse_setting

__all__ = [
    "AUTO",
    "EMULATOR",
    "SIMULATOR",
    "Scenario",
    "Setting",
    "load_scenario",
    "parse_scenario",
    "parse_setting",
]
