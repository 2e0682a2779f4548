"""Run on a guest: what the machine did before it was handed a bundle, as JSON: stage -> begin and end, s since boot."""

import json
import subprocess

STAGES = {
    "local disks": ("huddle-nvme.service", "huddle-nvme.service"),
    "cloud-init": ("cloud-init-local.service", "cloud-final.service"),
}


def moment(unit: str, name: str) -> float:
    """A timestamp of a unit, in seconds since boot."""
    command = ["systemctl", "show", "--value", f"--property={name}TimestampMonotonic", unit]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1e6


def kernel_end() -> float:
    """When the first process of user space began, as systemd has it (it counts from the kernel's start)."""
    command = ["systemctl", "show", "--value", "--property=UserspaceTimestampMonotonic"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1e6


def main() -> None:
    """Print all stages."""
    found = {"kernel": [0.0, kernel_end()]}
    for name, (first, last) in STAGES.items():
        found[name] = [moment(first, "InactiveExit"), moment(last, "ActiveEnter")]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
