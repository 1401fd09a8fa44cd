"""What must hold for the project as a whole: its layers, its documents, and what its sources never contain."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("topologies", "workloads", "controller", "emulator", "simulator", "experiments", "dashboard", "cli")

# Import names that differ from the name of the distribution that brings them.
DISTRIBUTIONS = {"yaml": "pyyaml", "os_ken": "os-ken"}
# Not from the registry: the system's Mininet and PyTorch, and what only the environment for Ryu has.
FROM_ELSEWHERE = {"mininet", "torch", "ryu", "eventlet"}


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def setup_keywords() -> dict[str, object]:
    """The literal arguments of setup() in setup.py."""
    calls = [
        node
        for node in ast.walk(ast.parse((ROOT / "setup.py").read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setup"
    ]
    keywords = {keyword.arg: keyword.value for keyword in calls[0].keywords}
    return {name: ast.literal_eval(keywords[name]) for name in ("install_requires", "extras_require") if name}


def distribution(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def declared() -> set[str]:
    keywords = setup_keywords()
    plain, extras = keywords["install_requires"], keywords["extras_require"]
    assert isinstance(plain, list)
    assert isinstance(extras, dict)
    return {distribution(requirement) for group in (plain, *extras.values()) for requirement in group}


def pinned(file: str) -> dict[str, str]:
    """Name and line of every requirement in a constraints file."""
    lines = [line for line in (ROOT / "requirements" / file).read_text().splitlines() if line and line[0] != "#"]
    return {distribution(line): line for line in lines}


def test_dependencies_between_packages_point_one_way() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [sys.executable, str(lint)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"\bmn\s+-c\b", "cleans the whole machine, not only what is ours"),
        (r"\b(killall|pkill)\b", "kills by name what may not be ours"),
        (r"OFPP_FLOOD|\bNORMAL\b|OFPP_NORMAL", "nothing floods"),
    ],
)
def test_sources_never_contain(pattern: str, why: str) -> None:
    files = [*sources(*PACKAGES), ROOT / "railbed"]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert found == [], why


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_page(name: str) -> None:
    page = ROOT / "docs" / "commands" / f"{name}.md"
    assert page.read_text().startswith(f"# railbed {name}\n")
    assert f"railbed {name}" in page.read_text().split("\n", 1)[1]


def test_every_page_has_a_command() -> None:
    assert {path.stem for path in (ROOT / "docs" / "commands").glob("*.md")} == set(COMMANDS)


def test_every_dependency_is_explained() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text()
    explained = {distribution(name) for name in re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)}
    assert declared() - explained == set()


def test_every_debian_package_of_the_launcher_is_explained() -> None:
    pairs = re.findall(r"\b[a-z0-9-]+:([a-z0-9-]+)\b", (ROOT / "railbed").read_text().split("missing_packages() {")[1])
    text = (ROOT / "docs" / "dependencies.md").read_text()
    assert "openvswitch-switch" in pairs
    assert [name for name in pairs if f"| `{name}` |" not in text] == []


def test_every_dependency_has_an_exact_version() -> None:
    constraints = pinned("constraints.txt")
    assert declared() - set(constraints) == {"ryu"}
    assert all(
        re.match(r"[A-Za-z0-9._-]+==[0-9]", line) for line in (*constraints.values(), *pinned("ryu.txt").values())
    )
    assert pinned("ryu.txt")["ryu"] == "ryu==4.34"


def test_every_import_is_declared() -> None:
    names = declared()
    undeclared = set()
    for path in sources(*PACKAGES, "tests"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules = [node.module]
            else:
                continue
            for module in modules:
                top = module.split(".")[0]
                if top in sys.stdlib_module_names or top in (*PACKAGES, "tests") or top in FROM_ELSEWHERE:
                    continue
                if DISTRIBUTIONS.get(top, top) not in names:
                    undeclared.add(f"{top} in {path.relative_to(ROOT)}")
    assert undeclared == set()


def test_the_root_free_part_needs_no_extra() -> None:
    """`pip install .` must be enough for everything below the emulator."""
    script = (
        "import sys\n"
        "for name in ('os_ken', 'psutil', 'pyroute2', 'scapy', 'mininet', 'ryu'): sys.modules[name] = None\n"
        "import pkgutil, importlib\n"
        "for package in ('topologies', 'workloads', 'simulator'):\n"
        "    for module in pkgutil.walk_packages([package], package + '.'):\n"
        "        if module.name != 'topologies.mn': importlib.import_module(module.name)\n"
        "from cli.main import main\n"
        "main(['--help'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_no_benchmark_hides_a_package_when_it_is_run_as_a_script() -> None:
    """Python looks for modules beside the script first."""
    assert not {path.stem for path in sources("benchmarks")} & {*PACKAGES, *sys.stdlib_module_names}
