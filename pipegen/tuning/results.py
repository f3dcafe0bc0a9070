# SPDX-License-Identifier: Apache-2.0
"""The results file of a search: what `pipegen tune` continues from, and what can be committed.

JSON. Each entry is one size on one device, under the digest of the description (without what a
search sets), and holds for each candidate the digest of its module's code. A size whose entry was
made from the same candidates is not measured again; a candidate that crashed or hung is not run
again as long as its module is the same.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipegen.description import KernelDescription
from pipegen.description_file import dump_description
from pipegen.errors import InputError, Problem
from pipegen.files import replace_file
from pipegen.measuring.statistics import Ratio
from pipegen.tuning.halving import ShapeResult, Timing
from pipegen.tuning.space import Candidate, without

FORMAT = 1
# What comes again if it is tried again, at the price of its time limit.
_DEADLY = ("hang", "the process ended", "CUDA error", "illegal")


def text_digest(text: str) -> str:
    """The first 12 hex digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def description_digest(description: KernelDescription, keep: Sequence[str] = ()) -> str:
    """A digest of what a search does not change."""
    return text_digest(dump_description(without(description, keep)))


def space_digest(candidates: Iterable[Candidate], peers: Sequence[str]) -> str:
    """A digest of what is compared: each candidate's module, and the peers."""
    return text_digest("\n".join(sorted(each.text for each in candidates)) + repr(sorted(peers)))


@dataclass
class Results:
    """The entries of a file by their key."""

    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def put(
        self,
        key: str,
        space: str,
        result: ShapeResult,
        candidates: Mapping[str, Candidate],
    ) -> None:
        """Keep a size's result, and what is known of its candidates."""
        self.entries[key] = {
            "shape": list(result.shape),
            "space": space,
            "clock": result.clock,
            "copies": result.copies,
            "work": result.work,
            "peers": {
                peer: {"configuration": word, "seconds": seconds}
                for peer, (word, seconds) in result.peers.items()
            },
            "ranked": [
                {
                    "name": timing.name,
                    "values": candidates[timing.name].as_dict(),
                    "module": text_digest(candidates[timing.name].text),
                    "seconds": timing.seconds,
                    "ratios": {peer: each.as_row() for peer, each in timing.ratios.items()},
                }
                for timing in result.ranked
            ],
            "shares": {name: round(share, 4) for name, share in result.shares.items()},
            "out": {
                name: (
                    {"why": why, "module": text_digest(candidates[name].text)}
                    if name in candidates
                    else {"why": why}
                )
                for name, why in result.out.items()
            },
        }

    def finished(self, key: str, space: str) -> ShapeResult | None:
        """The size's result, if it was made from the same candidates and peers."""
        entry = self.entries.get(key)
        if entry is None or entry["space"] != space or not entry["ranked"]:
            return None
        return shape_result(entry)

    def deadly(self, prefix: str) -> set[str]:
        """Digests of the modules that crashed or hung under keys that begin so."""
        return {
            each["module"]
            for key, entry in self.entries.items()
            if key.startswith(prefix)
            for each in entry["out"].values()
            if "module" in each and any(word in each["why"] for word in _DEADLY)
        }


def shape_result(entry: Mapping[str, Any]) -> ShapeResult:
    """An entry as the result that it was made from."""
    ranked = tuple(
        Timing(
            each["name"],
            each["seconds"],
            {
                peer: Ratio(row["ratio"], row["ratio_low"], row["ratio_high"])
                for peer, row in each["ratios"].items()
            },
        )
        for each in entry["ranked"]
    )
    return ShapeResult(
        tuple(entry["shape"]),
        ranked,
        entry["shares"],
        {name: each["why"] for name, each in entry["out"].items()},
        {peer: (each["configuration"], each["seconds"]) for peer, each in entry["peers"].items()},
        entry["work"],
        entry["clock"],
        entry["copies"],
    )


def read_results(path: Path) -> Results:
    """The results in a file; none if there is no file. Raises InputError for a file that is not
    ours: it is not overwritten."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return Results()
    except (OSError, ValueError) as error:
        raise InputError(Problem(f"cannot be read: {error}", file=str(path))) from None
    if not isinstance(data, dict) or data.get("pipegen_tune") != FORMAT:
        raise InputError(
            Problem(
                "is no results file of `pipegen tune`; it was left alone. --results names another",
                file=str(path),
            )
        )
    return Results(data["entries"], data.get("facts", {}))


def write_results(path: Path, results: Results) -> None:
    """Write the file whole. Raises InputError if that cannot be."""
    data = {"pipegen_tune": FORMAT, "facts": results.facts, "entries": results.entries}
    replace_file(path, json.dumps(data, indent=1) + "\n")
