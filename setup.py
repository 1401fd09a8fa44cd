"""Packaging of Railbed. The plain install is root-free; live fabrics need the extra `emulator`."""

from setuptools import find_packages, setup

PACKAGES = ["topologies", "workloads", "controller", "emulator", "simulator", "experiments", "dashboard", "cli"]

setup(
    name="railbed",
    version="0.1.0",
    description="A scale model of a GPU cluster's network: rail-only and spine-leaf fabrics that fit on a laptop",
    license="MIT",
    author="Railbed contributors",
    python_requires=">=3.10",
    classifiers=[
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
    ],
    # The explicit root makes an editable install a plain path entry, which type checkers follow too.
    package_dir={"": "."},
    packages=find_packages(include=[pattern for name in PACKAGES for pattern in (name, f"{name}.*")]),
    package_data={"": ["templates/*", "static/*", "*.yaml"]},
    entry_points={"console_scripts": ["railbed = cli.main:main"]},
    install_requires=[
        "click>=8.1",
        "jinja2>=3.1",
        "matplotlib>=3.8",
        "numba>=0.60",
        "numpy>=1.26",
        "pyarrow>=17",
        "pydantic>=2.6,<3",
        "pyyaml>=6.0",
        "rich>=13.7",
        "scipy>=1.11",
    ],
    extras_require={
        "emulator": [
            "os-ken>=4.0,<5",
            "psutil>=5.9",
            "pyroute2>=0.7",
            "scapy>=2.5",
            # Mininet imports distutils, which Python 3.12 no longer has and setuptools brings back.
            "setuptools>=64",
        ],
        "dashboard": ["starlette>=0.40,<2", "uvicorn>=0.30,<1"],
        "dask": ["dask>=2024.8", "distributed>=2024.8"],
        # Needs Python 3.10 or 3.11 and an old setuptools to build; the launcher keeps it in a venv of its own.
        "ryu": ["ryu==4.34"],
        "test": [
            "hypothesis>=6.100",
            "import-linter>=2.0",
            "jsonschema>=4.20",
            "mypy>=1.10",
            "pandas>=2.2",
            "networkx>=3.2",
            "playwright>=1.45",
            "pytest>=8.0",
            "pytest-timeout>=2.3",
            "ruff>=0.6",
            "types-PyYAML>=6.0",
        ],
    },
)
