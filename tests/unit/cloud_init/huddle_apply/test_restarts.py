"""Which services stop and start: properties that hold for any change."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cloud_init.huddle_apply.installed import rootfs
from cloud_init.huddle_apply.services import restarts

UNITS = ("ray", "models", "engine", "wrapper")
FOLLOWS = {"ray": [], "models": [], "engine": ["models", "ray"], "wrapper": ["engine"]}
PRINTS = st.sampled_from(["a", "b"])


@st.composite
def services(draw: st.DrawFn) -> list[dict[str, Any]]:
    present = [unit for unit in UNITS if draw(st.booleans())]
    return [
        {
            "unit": unit,
            "restart": draw(PRINTS),
            "reload": draw(PRINTS),
            "follows": [other for other in FOLLOWS[unit] if other in present],
        }
        for unit in present
    ]


@st.composite
def running(draw: st.DrawFn) -> dict[str, dict[str, str]]:
    return {unit: {"restart": draw(PRINTS), "reload": draw(PRINTS)} for unit in (*UNITS, "old") if draw(st.booleans())}


@given(services(), running(), st.sets(st.sampled_from((*UNITS, "old"))), st.sets(st.sampled_from(UNITS)))
def test_properties(
    wanted: list[dict[str, Any]], now: dict[str, dict[str, str]], active: set[str], starting: set[str]
) -> None:
    steady = active - starting
    plan = restarts.plan(wanted, now, active, steady)
    names = [service["unit"] for service in wanted]
    kept = [unit for unit in names if unit in active and unit not in plan.start]
    # Afterwards everything wanted runs: it was started, or ran and was made from the same things.
    assert set(plan.start) | set(kept) == set(names)
    for service in wanted:
        if service["unit"] in kept:
            assert now[service["unit"]]["restart"] == service["restart"]
            assert not set(service["follows"]) & set(plan.stop)
            assert (service["unit"] in plan.reload) == (now[service["unit"]]["reload"] != service["reload"])
    # What runs and starts again is stopped first, front to back; what is not wanted any more is stopped, too.
    stopped = [unit for unit in plan.stop if unit in names]
    assert stopped == [unit for unit in reversed(names) if unit in active and unit in plan.start]
    assert set(plan.remove) == set(now) - set(names)
    assert set(plan.remove) <= set(plan.stop)
    # Also among those that leave: whoever sends requests goes before whoever gets them.
    ran = [unit for unit in plan.stop if unit in now]
    assert ran == [unit for unit in reversed(now) if unit in ran]
    assert list(plan.start) == [unit for unit in names if unit in plan.start]
    assert not set(plan.reload) & set(plan.start)
    # systemd refuses to reload what is just being started again.
    assert set(plan.reload) <= steady


@given(services())
def test_what_is_as_it_should_be_is_left_alone(wanted: list[dict[str, Any]]) -> None:
    now = {service["unit"]: {"restart": service["restart"], "reload": service["reload"]} for service in wanted}
    assert restarts.plan(wanted, now, set(now), set(now)).nothing


CONTENT = st.tuples(st.binary(max_size=4), st.sampled_from([0o644, 0o755]))
FILES = st.dictionaries(st.sampled_from(["etc/a", "etc/b", "opt/c/d"]), CONTENT)


@given(FILES, FILES)
def test_files_follow_the_bundle(first: Any, second: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rootfs.sync(root, first, {})
        changes = rootfs.sync(root, second, rootfs.digests(first))
        present = [path for path in root.rglob("*") if path.is_file()]
        found = {p.relative_to(root).as_posix(): (p.read_bytes(), p.stat().st_mode & 0o777) for p in present}
        assert found == second
        assert set(changes.removed) == set(first) - set(second)
        assert set(changes.written) == {path for path in second if first.get(path) != second[path]}
        assert rootfs.sync(root, second, rootfs.digests(second)) == rootfs.Changes((), ())
