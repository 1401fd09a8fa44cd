from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from tests.real_inputs import INPUTS, needs_inputs, real
from tests.workloads.importers.makers import kineto, nccl_kernel, refusal, write_json, write_text
from topologies.importers.errors import (
    ImportFileError,
    TruncatedFileError,
    UnknownKindError,
    UnsupportedKindError,
)
from workloads.importers.registry import import_files, kind_of
from workloads.importers.source import Source

# What every real file must be recognised as; None: told by name, but not imported.
EXPECTED: dict[str, str | None] = {
    "pytorch-kineto/**/*.gz": "kineto",
    "pytorch-et/**/*.gz": "pytorch-et",
    "chakra-et/*/**/*.et": "chakra",
    "chakra-et/*.gz": "chakra-json",
    "msccl-xml/*": None,
    "simai-workload-txt/*/*": "simai",
    "aicb-csv/*": "aicb",
    "nccl-tests-log/*": "nccl-tests",
    "nccl-debug-log/*": "nccl-debug",
    "nccl-topo-xml/*": "nccl-topo",
    "nvidia-smi-topo/*": "nvidia-smi-topo",
    "fabric-topology/ibnetdiscover/*": "ibnetdiscover",
    "fabric-topology/simai-topo/*": "simai-topology",
    "fabric-topology/slurm/*": None,
    "fabric-topology/topograph-model/*": None,
    "fabric-topology/netq/*": None,
    "fabric-topology/astra-network/*": None,
    "fabric-topology/containerlab/*": None,
}


def name_of(path: Path) -> str | None:
    try:
        return kind_of(Source(path)).name
    except UnsupportedKindError:
        return None


@needs_inputs
class TestRealFiles:
    @pytest.mark.parametrize("pattern", EXPECTED)
    def test_every_file_is_recognised_by_its_content(self, pattern: str, tmp_path: Path) -> None:
        paths = real(pattern)
        assert Counter(name_of(path) for path in paths) == {EXPECTED[pattern]: len(paths)}
        # Neither its name nor whether it is zipped matters.
        content = paths[0].read_bytes()
        other = tmp_path / "thing"
        other.write_bytes(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else gzip.compress(content))
        assert name_of(other) == EXPECTED[pattern]

    def test_no_file_is_left_out(self) -> None:
        listed = {path for pattern in EXPECTED for path in real(pattern)}
        present = {
            path
            for path in INPUTS.rglob("*")
            if path.is_file() and path.name != "README.md" and "LICENSES" not in path.parts
        }
        assert present == listed

    def test_every_file_alone_is_imported_or_refused_in_one_sentence(self) -> None:
        errors = [error for pattern in EXPECTED for path in real(pattern) if (error := refusal(path))]
        assert not any("\n" in str(error) for error in errors)
        refused = Counter(type(error).__name__ for error in errors)
        unsupported = sum(len(real(pattern)) for pattern, kind in EXPECTED.items() if kind is None)
        assert refused == {"UnsupportedKindError": unsupported, "CountMismatchError": 1}

    @pytest.mark.parametrize("pattern", [pattern for pattern, kind in EXPECTED.items() if kind not in (None, "kineto")])
    def test_a_file_cut_in_two_is_no_crash(self, pattern: str, tmp_path: Path) -> None:
        """Half a file is refused, or what is left is whole by itself (a log, for one); it is never a traceback."""
        content = real(pattern)[0].read_bytes()
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        for share in (0.1, 0.5, 0.9):
            path = tmp_path / "half"
            path.write_bytes(content[: int(len(content) * share)])
            assert "\n" not in str(refusal(path))


def test_what_is_nothing_known_is_refused(tmp_path: Path) -> None:
    for text in ("", " \n", "hello\n", "{}", '{"a": [1, 2]}', "[1, 2]", "a,b,c\n1,2,3\n", "<html></html>"):
        with pytest.raises(UnknownKindError, match=r"x\.txt is"):
            import_files([write_text(tmp_path / "x.txt", text)])
    (tmp_path / "x.bin").write_bytes(bytes(range(256)) * 20)
    with pytest.raises(UnknownKindError):
        import_files([tmp_path / "x.bin"])


def test_a_gzip_file_without_content_is_truncated(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"x" * 1000)[:12])
    with pytest.raises(TruncatedFileError, match="gzip stream breaks off"):
        import_files([tmp_path / "x.gz"])


def test_one_kind_at_a_time(tmp_path: Path) -> None:
    trace = write_json(tmp_path / "a.json", kineto([nccl_kernel(0, "allreduce", 1, range(2))], 0, 2))
    micro = write_text(tmp_path / "w.txt", "MICRO\n1\nx -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 8 1\n")
    with pytest.raises(ImportFileError, match=r"a\.json is a PyTorch profiler .* w\.txt a SimAI"):
        import_files([trace, micro])
    with pytest.raises(ImportFileError, match="a SimAI text workload is one file, but 2 are given"):
        import_files([micro, micro])


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match="cannot be read: No such file"):
        import_files([tmp_path / "none"])


def test_progress_is_the_share_of_all_files(tmp_path: Path) -> None:
    paths = [
        write_json(tmp_path / f"{rank}.json", kineto([nccl_kernel(0, "allreduce", 1, range(2))], rank, 2))
        for rank in (0, 1)
    ]
    shares: list[float] = []
    import_files(paths, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert any(share == 0.5 for share in shares)
