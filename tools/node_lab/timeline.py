"""A node's cold start as a picture: from the power switch to the first answer, measured in the lab.

`python -m tools.node_lab.timeline docs/pictures/boot-timeline.svg` boots a machine and draws what its ledger says.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tools.node_lab.lab import Lab

WIDTH, LEFT, RIGHT = 900, 150, 90
_TOP, _ROW = 80, 24
_TICKS = 8
_PROGRAM = Path(__file__).parent / "stages.py"
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Phase:
    """One phase, in seconds from the power switch. `kind`: `machine` or `apply`."""

    name: str
    begin_s: float
    seconds: float
    kind: str


@dataclass(frozen=True)
class Bar:
    """A phase with its place on the page, in pixels."""

    name: str
    x: float
    y: int
    width: float
    label: str
    kind: str


def phases(stages: Mapping[str, Sequence[float]], status: Mapping[str, Any]) -> list[Phase]:
    """The machine's own stages (name: begin and end, s since boot) and the phases of its ledger, by begin."""
    own = [Phase(name, begin, end - begin, "machine") for name, (begin, end) in stages.items()]
    start = float(status["uptime_s"])
    applied = [Phase(one["name"], start + one["begin_s"], one["seconds"], "apply") for one in status["phases"]]
    return sorted([*own, *applied], key=lambda one: one.begin_s)


def draw(found: Iterable[Phase], subtitle: str) -> str:
    """The picture as SVG. Deterministic."""
    rows = list(found)
    total = max(one.begin_s + one.seconds for one in rows)
    step = _nice(total / _TICKS)
    scale = (WIDTH - LEFT - RIGHT) / (math.ceil(total / step) * step)
    bars = [
        Bar(
            name=one.name,
            x=round(LEFT + one.begin_s * scale, 1),
            y=_TOP + index * _ROW,
            width=round(max(2.0, one.seconds * scale), 1),
            label=f"{one.seconds:.1f} s",
            kind=one.kind,
        )
        for index, one in enumerate(rows)
    ]
    ticks = [
        {"x": round(LEFT + number * step * scale, 1), "label": f"{number * step:g} s"}
        for number in range(math.ceil(total / step) + 1)
    ]
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), undefined=StrictUndefined, autoescape=True, trim_blocks=True
    )
    return environment.get_template("boot-timeline.svg.j2").render(
        title="From the power switch to the first answer",
        subtitle=subtitle,
        width=WIDTH,
        height=_TOP + len(rows) * _ROW + 44,
        left=LEFT,
        bars=bars,
        ticks=ticks,
    )


def _nice(seconds: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50 ..."""
    power = 10.0 ** math.floor(math.log10(seconds))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= seconds)


def measure() -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Boot a node, apply its bundle, and return the machine's stages (s since boot) and the ledger."""
    lab = Lab()
    try:
        node = lab.node(1, [lab.disk("local0")])
        node.boot()
        node.shell.run("cloud-init status --wait", timeout_s=400)
        done = node.apply(lab.bundle())
        if done.code:
            raise SystemExit(f"the node does not serve:\n{done.out}\n{done.err}")
        stages = json.loads(node.shell.out("python3 -", stdin=_PROGRAM.read_text(encoding="utf-8")))
        return stages, node.status()
    finally:
        lab.close()


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", type=Path, help="where the picture goes")
    target: Path = parser.parse_args().target
    stages, status = measure()
    where = "emulated machine (QEMU without KVM, stand-in engine, libraries in the image): "
    where += "the order of things, not an H100's times"
    target.write_text(draw(phases(stages, status), where), encoding="utf-8")


if __name__ == "__main__":
    main()
