# SPDX-License-Identifier: Apache-2.0
"""Which DSLs are installed, in which versions, and whether they can compile here.

Read from package metadata alone: importing a DSL costs a second, and can crash.
"""

import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass, field
from functools import cache

# The check that a backend's modules need; task scheduling is part of the CuTe DSL.
DSL_OF_BACKEND = {"cute": "cute", "cute-ts": "cute", "pallas": "pallas"}
DSLS = ("cute", "pallas")

_CUTE = "nvidia-cutlass-dsl"
_CUTE_OLDEST = "4.8"
_JAX_OLDEST = "0.10.2"
# The plug-in's CUDA major version is part of its name.
_CUDA_MAJORS = ("12", "13")
# What jaxlib compiles with where it is installed. With nvJitLink it compiles code to be linked, in
# which ptxas ignores setmaxnreg (C7504): other registers, and spills where there were none.
_XLA_COMPILERS = tuple(
    f"nvidia-{name}{end}" for name in ("nvjitlink", "cuda-nvcc") for end in ("", "-cu12", "-cu13")
)


@dataclass(frozen=True)
class Dsl:
    """The state of one DSL: `reason` says why it cannot compile here, empty if it can."""

    name: str
    versions: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    command: str = ""
    # Installed, but unusable: a thing to repair rather than a thing to add.
    broken: bool = False

    @property
    def usable(self) -> bool:
        """Whether modules of this DSL can be compiled here."""
        return not self.reason


@cache
def version_of(distribution: str) -> str:
    """The version of an installed package, or an empty string."""
    try:
        # None for a package whose metadata is damaged.
        return importlib.metadata.version(distribution) or ""
    except importlib.metadata.PackageNotFoundError:
        return ""


def version_key(version: str) -> tuple[int, ...]:
    """The release numbers of a version for comparing: `0.12.0.1` -> (0, 12, 0, 1)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def dsl(name: str) -> Dsl:
    """The state of `cute` or `pallas`."""
    return _cute() if name == "cute" else _pallas()


def _cute() -> Dsl:
    names = [_CUTE, *(f"{_CUTE}-libs-{part}" for part in ("base", "core", "cu12", "cu13"))]
    versions = _versions(names)
    install = "pip install 'pipegen[cute]'"
    if _CUTE not in versions:
        return Dsl("cute", versions, f"{_CUTE} is not installed", install)
    version = versions[_CUTE]
    if version_key(version) < version_key(_CUTE_OLDEST):
        reason = (
            f"{_CUTE} {version} is older than {_CUTE_OLDEST}, which brought cutlass.memory; "
            "also, below 4.6 bulk copies do not elect their lane"
        )
        return Dsl("cute", versions, reason, f"pip install '{_CUTE}>={_CUTE_OLDEST}'", True)
    origin = _origin("cutlass")
    if not origin:
        reason = f"{_CUTE} {version} is installed, but its module cutlass is not found"
        return Dsl("cute", versions, reason, f"pip install --force-reinstall {_CUTE}", True)
    if "nvidia_cutlass_dsl" not in origin:
        reason = (
            f"another package hides the DSL: `import cutlass` would take {origin} "
            "(the package nvidia-cutlass has a module of the same name)"
        )
        return Dsl("cute", versions, reason, "pip uninstall nvidia-cutlass", True)
    return Dsl("cute", versions)


def _pallas() -> Dsl:
    plugins = [f"jax-cuda{major}-{part}" for major in _CUDA_MAJORS for part in ("plugin", "pjrt")]
    versions = _versions(["jax", "jaxlib", *plugins, "absl-py", *_XLA_COMPILERS])
    install = "pip install 'pipegen[pallas]'"
    if "jax" not in versions:
        return Dsl("pallas", versions, "jax is not installed", install)
    version = versions["jax"]
    if version_key(version) < version_key(_JAX_OLDEST):
        reason = f"jax {version} is older than {_JAX_OLDEST} and spells Mosaic GPU differently"
        return Dsl("pallas", versions, reason, f"pip install 'jax>={_JAX_OLDEST}'", True)
    majors = [
        major
        for major in _CUDA_MAJORS
        if f"jax-cuda{major}-plugin" in versions and f"jax-cuda{major}-pjrt" in versions
    ]
    if not majors:
        reason = "the CUDA plug-in of jax, whose compiler needs no GPU, is not installed"
        return Dsl("pallas", versions, reason, install)
    plugin = versions[f"jax-cuda{majors[0]}-plugin"]
    if version_key(plugin) != version_key(versions.get("jaxlib", "")):
        # jax compares the two and drops the plug-in with a warning unless they are equal.
        found = versions.get("jaxlib", "missing")
        reason = f"jaxlib is {found}, but the CUDA plug-in is {plugin}: jax will not use it"
        command = f"pip install --upgrade 'jax=={version}' 'jaxlib=={version}' "
        command += " ".join(f"'jax-cuda{majors[0]}-{p}=={version}'" for p in ("plugin", "pjrt"))
        return Dsl("pallas", versions, reason, command, True)
    if version_key(version) < (0, 11) and "absl-py" not in versions and not _origin("absl"):
        reason = f"jax {version} imports absl for Mosaic GPU, but does not install it"
        return Dsl("pallas", versions, reason, "pip install absl-py")
    return Dsl("pallas", versions)


def _versions(names: list[str]) -> dict[str, str]:
    return {name: version for name in names if (version := version_of(name))}


def _origin(module: str) -> str:
    """Where `import module` would load from; empty if nowhere. Imports nothing."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return ""
    if spec is None:
        return ""
    return spec.origin or next(iter(spec.submodule_search_locations or []), "")
