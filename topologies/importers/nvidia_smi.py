"""The matrix of ``nvidia-smi topo -m``: how the GPUs and NICs of one server are joined."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from topologies.importers.errors import MalformedFileError, TruncatedFileError
from topologies.importers.reading import FabricReading, Pattern

KIND = "nvidia-smi-topo"
TITLE = "nvidia-smi topo -m matrix"

_GPU = re.compile(r"GPU(\d+)$")
_NIC = re.compile(r"(?:NIC\d+|mlx\d+_\w+|rdmap\w+|hfi\w+|bnxt\w+|efa\w*)$")
_LEGEND_NIC = re.compile(r"^\s*(NIC\d+):\s*(\S+)", re.MULTILINE)
_NEAR = ("PIX", "PXB")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PRESETS = {(8, 12): "dgx-a100", (8, 18): "dgx-h100"}


def matches(text: str) -> bool:
    """Whether ``text``, the start of a file, can be such a matrix."""
    return any("GPU0" in line and line.split()[:1] == ["GPU0"] for line in _COLOUR.sub("", text).splitlines()[:5])


def parse(name: str, text: str) -> FabricReading:
    """The server in the matrix called ``name``.

    Raises TruncatedFileError for missing rows of GPUs, and MalformedFileError for a row that does not fit the header.
    """
    lines = [line for line in _COLOUR.sub("", text).splitlines() if line.strip()]
    columns = re.split(r"\t+|\s{2,}", lines[0].strip())
    devices = [column.strip() for column in columns if _GPU.match(column.strip()) or _NIC.match(column.strip())]
    gpus = [device for device in devices if _GPU.match(device)]
    nics = [device for device in devices if not _GPU.match(device)]
    rows: dict[str, list[str]] = {}
    for line in lines[1:]:
        words = line.split()
        if words[0] not in gpus:
            continue
        cells = words[1 : 1 + len(devices)]
        if len(cells) < len(devices):
            raise TruncatedFileError(
                f"{name} is truncated: the row of {words[0]} has {len(cells)} of {len(devices)} cells; copy it again"
            )
        if cells[devices.index(words[0])] != "X":
            raise MalformedFileError(
                f"{name}: the row of {words[0]} does not fit the header (no X on the diagonal); copy the matrix again"
            )
        rows[words[0]] = cells
    if len(rows) < len(gpus):
        raise TruncatedFileError(
            f"{name} is truncated: it has {len(rows)} of the {len(gpus)} rows of GPUs; copy the whole matrix"
        )
    real_name = dict(_LEGEND_NIC.findall(text))
    rails = _rails(gpus, nics, devices, rows)
    nvlinks = Counter(cell for gpu in gpus for cell in rows[gpu][: len(gpus)] if cell != "X")
    usual = nvlinks.most_common(1)[0][0] if nvlinks else ""
    links = int(usual[2:]) if re.fullmatch(r"NV\d+", usual) else 0
    warnings = []
    if len(nvlinks) > 1:
        warnings.append(f"the GPUs are not all joined alike: {', '.join(sorted(nvlinks))}")
    if not links:
        warnings.append("the GPUs are not joined by NVLink")
    shared = [nic for nic, count in Counter(rails.values()).items() if count > 1]
    if shared:
        warnings.append(f"GPUs share a NIC: {', '.join(shared)}")
    if len(rails) == len(gpus):
        reason = f"each of the {len(gpus)} GPUs has a NIC near to it, which makes its rail"
    elif rails:
        reason = f"{len(rails)} of {len(gpus)} GPUs have a NIC near to them; the others have no rail"
    else:
        reason = "no GPU has a NIC on its own PCIe switch (PIX or PXB), so no rail can be derived"
    return FabricReading(
        KIND, TITLE, name, Pattern.ONE_SERVER, reason,
        {"gpus": len(gpus), "nics": len(nics), "nvlinks_per_gpu": links, "rails": len(set(rails.values()))},
        preset=_PRESETS.get((len(gpus), links)), warnings=tuple(warnings),
        rails={gpu: real_name.get(nic, nic) for gpu, nic in rails.items()},
    )  # fmt: skip


def _rails(
    gpus: Sequence[str], nics: Sequence[str], devices: Sequence[str], rows: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """The NIC nearest to each GPU, for those that have one on their PCIe switch."""
    rails = {}
    for gpu in gpus:
        for near in _NEAR:
            found = [nic for nic in nics if rows[gpu][devices.index(nic)] == near]
            if found:
                rails[gpu] = found[0]
                break
    return rails
