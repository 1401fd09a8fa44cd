"""The JSON Schema of scenario files, for editors."""

from __future__ import annotations

import json
from typing import Any

from experiments.scenario.model import Scenario

PUBLISHED = "docs/scenario.schema.json"
"""Where the checkout keeps it; a test holds it in step with the model."""


def scenario_schema() -> dict[str, Any]:
    """The schema (draft 2020-12). ``fabric`` may stand in the place of ``fabrics``."""
    schema = Scenario.model_json_schema(mode="validation")
    fabrics = schema["properties"]["fabrics"]
    single = {**fabrics["items"], "description": "A single fabric, in the place of 'fabrics'."}
    schema["properties"]["fabric"] = single
    schema["required"] = [key for key in schema["required"] if key != "fabrics"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Railbed scenario",
        "oneOf": [{"required": ["fabrics"]}, {"required": ["fabric"]}],
    }


def schema_text() -> str:
    """The schema as the file holds it."""
    return json.dumps(scenario_schema(), indent=2, ensure_ascii=False) + "\n"
