"""Hardware presets, from the vendors' data sheets. Rates are per GPU and per direction."""

from __future__ import annotations

from dataclasses import dataclass

from topologies.errors import UnknownPresetError
from topologies.near import did_you_mean


@dataclass(frozen=True)
class HardwarePreset:
    """A GPU server or rack: GPUs in one HB domain, and the two ways out of each GPU."""

    name: str
    title: str
    gpus_per_domain: int
    nvlink_rate_mbps: float
    nic_rate_mbps: float


PRESETS: dict[str, HardwarePreset] = {
    preset.name: preset
    for preset in (
        HardwarePreset("dgx-a100", "DGX A100", 8, 2_400_000.0, 200_000.0),
        HardwarePreset("dgx-h100", "DGX H100", 8, 3_600_000.0, 400_000.0),
        HardwarePreset("gh200-nvl256", "GH200 NVL256", 256, 3_600_000.0, 400_000.0),
        HardwarePreset("gb200-nvl72", "GB200 NVL72", 72, 7_200_000.0, 400_000.0),
    )
}


def preset(name: str) -> HardwarePreset:
    """The preset called ``name`` (case, blanks and underscores do not matter); raises UnknownPresetError."""
    key = name.strip().lower().replace("_", "-").replace(" ", "-")
    if key not in PRESETS:
        hint = did_you_mean(key, PRESETS)
        raise UnknownPresetError(f"unknown preset '{name}': {hint}The presets are {', '.join(PRESETS)}")
    return PRESETS[key]
