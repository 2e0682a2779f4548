"""What nvidia-smi says about this node's GPUs: how much memory is free and who holds the rest."""

import csv
import io
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from huddle import gpus
from huddle.errors import InputError

_TIMEOUT_S = 20
_GPU_QUERY = "index,uuid,name,memory.total,memory.used,memory.free"
_APP_QUERY = "gpu_uuid,pid,used_memory"


class GpuError(InputError):
    """No GPU, a wedged driver, or not enough memory."""


@dataclass(frozen=True)
class Holder:
    """A process with memory on a GPU."""

    pid: int
    used_mib: int

    def __str__(self) -> str:
        try:
            process = psutil.Process(self.pid)
            what = " ".join(" ".join(process.cmdline()).split())[:60] or process.name()  # vLLM pads its titles
            who = f"{what}, user {process.username()}"
        except psutil.Error:
            who = "not visible from here"
        return f"pid {self.pid} ({who}) {self.used_mib:,} MiB"


@dataclass(frozen=True)
class GpuState:
    """One GPU now; sizes in MiB."""

    index: int
    uuid: str
    title: str
    total_mib: int
    used_mib: int
    free_mib: int
    holders: tuple[Holder, ...] = field(default=())


def read(environ: Mapping[str, str] = os.environ) -> tuple[GpuState, ...]:
    """The GPUs that CUDA would show to a program started now.

    Raises:
        GpuError: when nvidia-smi is not there, fails or hangs, or shows no GPU.
    """
    if shutil.which("nvidia-smi") is None:
        raise GpuError(
            "no GPU on this node: nvidia-smi is not installed; use --device cpu, or --dry-run to only see the command"
        )
    found = parse(_query("--query-gpu", _GPU_QUERY), _query("--query-compute-apps", _APP_QUERY))
    visible = _visible(found, environ.get("CUDA_VISIBLE_DEVICES"))
    if not visible:
        raise GpuError("nvidia-smi shows no GPU that this process may use (see CUDA_VISIBLE_DEVICES)")
    return visible


def parse(gpu_lines: str, app_lines: str) -> tuple[GpuState, ...]:
    """Read the two CSV answers (noheader, nounits). A `[N/A]` counts as 0."""
    holders: dict[str, list[Holder]] = {}
    for uuid, pid, used in _rows(app_lines, 3):
        holders.setdefault(uuid, []).append(Holder(int(pid), _mib(used)))
    return tuple(
        GpuState(int(index), uuid, title, _mib(total), _mib(used), _mib(free), tuple(holders.get(uuid, ())))
        for index, uuid, title, total, used, free in _rows(gpu_lines, 6)
    )


def memory_problems(states: Sequence[GpuState], utilization: float) -> list[str]:
    """Sentences about GPUs with less free memory than vLLM will claim: how much is missing and who has it."""
    problems = []
    for state in states:
        known = gpus.gpu_by_smi_name(state.title)
        visible_mib = known.visible_gib * gpus.MIB_PER_GIB if known else state.total_mib
        needed = round(visible_mib * utilization)
        if state.free_mib < needed:
            held = "; ".join(str(holder) for holder in state.holders) or "no process that nvidia-smi can name"
            problems.append(
                f"GPU {state.index} has {state.free_mib:,} of {state.total_mib:,} MiB free and gpu-memory-utilization "
                f"{utilization:g} takes {needed:,}: {needed - state.free_mib:,} MiB are missing; held by {held}"
            )
    return problems


def _query(what: str, fields: str) -> str:
    command = ["nvidia-smi", f"{what}={fields}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise GpuError(f"nvidia-smi did not answer within {_TIMEOUT_S} s: the driver hangs; reboot the node") from error
    if answer.returncode:
        said = (answer.stdout + answer.stderr).strip().splitlines()
        raise GpuError(f"nvidia-smi failed with {answer.returncode}: {said[0] if said else 'it said nothing'}")
    return answer.stdout


def _visible(states: tuple[GpuState, ...], chosen: str | None) -> tuple[GpuState, ...]:
    """The GPUs of CUDA_VISIBLE_DEVICES, in its order: indices or UUID prefixes; it ends at the first unknown one."""
    if chosen is None:
        return states
    visible: list[GpuState] = []
    for word in chosen.split(","):
        found = next((s for s in states if word.strip() in {str(s.index)} or _is_uuid(s, word.strip())), None)
        if found is None:
            break
        visible.append(found)
    return tuple(visible)


def _is_uuid(state: GpuState, word: str) -> bool:
    return word.startswith("GPU-") and state.uuid.startswith(word)


def _rows(text: str, columns: int) -> list[list[str]]:
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [[cell.strip() for cell in row] for row in rows if len(row) == columns]


def _mib(cell: str) -> int:
    return int(cell) if cell.isdigit() else 0
