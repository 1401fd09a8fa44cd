"""Finds out what files are by their content, and reads them: traces, workloads, logs and fabrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from topologies.importers import ibnetdiscover, nccl_topo, nvidia_smi, simai_topo
from topologies.importers.errors import ImportFileError, UnknownKindError, UnsupportedKindError
from topologies.importers.reading import FabricReading
from workloads.importers import aicb, chakra, execution_trace, kineto, nccl_debug, nccl_tests, simai
from workloads.importers.merge import merge
from workloads.importers.model import Reading, Workload
from workloads.importers.source import Progress, Source

Imported = Workload | FabricReading | nccl_tests.NcclTestsLog


@dataclass(frozen=True)
class Options:
    """What the user says beyond the files.

    ``gpus`` is the number of GPUs of the fabric; ``strict`` forbids assumptions; ``any_count`` reads files whose stated
    count of rows is wrong.
    """

    gpus: int | None = None
    strict: bool = False
    any_count: bool = False


@dataclass(frozen=True)
class KindOfFile:
    """One kind of file. ``per_rank``: a run has one file for each rank, which are read together."""

    name: str
    title: str
    matches: Callable[[bytes, str], bool]
    per_rank: bool = False
    read_workload: Callable[[Sequence[Source], Options], Reading] | None = None
    read_fabric: Callable[[str, str], FabricReading] | None = None


def _is_json(head: bytes, *keys: bytes) -> bool:
    return head.lstrip().startswith(b"{") and all(key in head for key in keys)


def _is_kineto(head: bytes, _: str) -> bool:
    named = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"', b'"baseTimeNanoseconds"')
    return _is_json(head) and any(key in head for key in named)


KINDS: tuple[KindOfFile, ...] = (
    KindOfFile(
        kineto.KIND, kineto.TITLE, _is_kineto, per_rank=True, read_workload=lambda sources, _: kineto.read(sources)
    ),
    KindOfFile(
        execution_trace.KIND, execution_trace.TITLE, lambda head, _: _is_json(head, b'"schema"', b'"nodes"'),
        per_rank=True, read_workload=lambda sources, _: execution_trace.read(sources),
    ),
    KindOfFile(
        "chakra-json", f"{chakra.TITLE} (JSON)", lambda head, _: _is_json(head, b'"workload_graph"'),
        per_rank=True, read_workload=lambda sources, _: chakra.read_json(sources),
    ),
    KindOfFile(
        simai.KIND, simai.TITLE, lambda _, text: simai.matches(text),
        read_workload=lambda sources, options: simai.read(sources[0], options.gpus, any_count=options.any_count),
    ),
    KindOfFile(
        aicb.KIND, aicb.TITLE, lambda _, text: aicb.matches(text),
        read_workload=lambda sources, options: aicb.read(sources[0], options.gpus),
    ),
    KindOfFile(nccl_tests.KIND, nccl_tests.TITLE, lambda _, text: nccl_tests.matches(text)),
    KindOfFile(
        nccl_debug.KIND, nccl_debug.TITLE, lambda _, text: nccl_debug.matches(text),
        read_workload=lambda sources, _: nccl_debug.read(sources[0]),
    ),
    KindOfFile(
        ibnetdiscover.KIND, ibnetdiscover.TITLE, lambda _, text: ibnetdiscover.matches(text),
        read_fabric=ibnetdiscover.parse,
    ),
    KindOfFile(
        simai_topo.KIND, simai_topo.TITLE, lambda _, text: simai_topo.matches(text), read_fabric=simai_topo.parse
    ),
    KindOfFile(
        nvidia_smi.KIND, nvidia_smi.TITLE, lambda _, text: nvidia_smi.matches(text), read_fabric=nvidia_smi.parse
    ),
    KindOfFile(nccl_topo.KIND, nccl_topo.TITLE, lambda _, text: nccl_topo.matches(text), read_fabric=nccl_topo.parse),
    KindOfFile(
        chakra.KIND, chakra.TITLE, lambda head, _: chakra.looks_like_et(head), per_rank=True,
        read_workload=lambda sources, _: chakra.read_et(sources),
    ),
)  # fmt: skip
"""Every kind that is imported; the one without any text to go by is the last."""

_UNSUPPORTED: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("an MSCCL algorithm (XML)", lambda text: "<algo " in text[:2000]),
    ("a Slurm topology.conf", lambda text: any(line.startswith("SwitchName=") for line in text.splitlines())),
    (
        "an ASTRA-sim network file",
        lambda text: bool(re.search(r'^npus_count\s*:|^\s*"logical-dims"\s*:', text, re.MULTILINE)),
    ),
    ("a containerlab topology", lambda text: "\ntopology:" in text and "endpoints:" in text),
    ("a topograph model", lambda text: text.startswith("switches:") or "\nswitches:" in text),
    ("a NetQ export", lambda text: '"compounded_links"' in text or '"GpuIDList"' in text),
)
"""Kinds that are told by name, because people have them, but are not imported."""


def kind_of(source: Source) -> KindOfFile:
    """The kind of a file by its content. Raises UnsupportedKindError and UnknownKindError, which name what is read."""
    head = source.head()
    text = head.decode("utf-8", "replace").lstrip("\ufeff").replace("\r\n", "\n")
    if not text.strip():
        source.data()  # which tells a broken gzip file from one without content
        raise UnknownKindError(f"{source.name} is empty; give a trace, a workload, a log or a fabric")
    for kind in KINDS:
        if kind.matches(head, text):
            return kind
    titles = ", ".join(kind.title for kind in KINDS)
    for title, matches in _UNSUPPORTED:
        if matches(text):
            raise UnsupportedKindError(f"{source.name} is {title}, which cannot be imported; what can: {titles}")
    raise UnknownKindError(f"{source.name} is of no kind that can be imported; what can: {titles}")


def import_files(paths: Sequence[Path], options: Options = Options(), progress: Progress | None = None) -> Imported:
    """What the files hold: a workload, a fabric or the table of an nccl-tests log.

    ``progress`` is told the share that is read of all files together. Raises an ImportFileError with one sentence for
    anything that cannot be read.
    """
    sources = [Source(path, _part(progress, place, len(paths))) for place, path in enumerate(paths)]
    kinds = [kind_of(source) for source in sources]
    kind = kinds[0]
    for source, other in zip(sources, kinds, strict=True):
        if other is not kind:
            raise ImportFileError(
                f"{sources[0].name} is a {kind.title}, {source.name} a {other.title}; import one kind at a time"
            )
    if len(sources) > 1 and not kind.per_rank:
        raise ImportFileError(f"a {kind.title} is one file, but {len(sources)} are given; import them one by one")
    if kind.read_workload is not None:
        reading = kind.read_workload(sources, options)
        return merge(reading, gpus=options.gpus, strict=options.strict)
    if kind.read_fabric is not None:
        return kind.read_fabric(sources[0].name, sources[0].text())
    return nccl_tests.parse(sources[0].name, sources[0].text())


def _part(progress: Progress | None, place: int, count: int) -> Progress | None:
    if progress is None:
        return None
    told = progress
    return lambda share: told((place + share) / count)
