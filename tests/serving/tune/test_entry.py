"""What a sweep found goes into the registry's file, and nothing else there changes."""

import re
import threading
import time
from pathlib import Path

import pytest
import yaml

from huddle import registry
from huddle.errors import InputError
from huddle.registry import Flags, KvCacheType, Load, Tuned
from huddle.registry.schema import Level, Measured
from huddle.tune import entry, lock
from tools.deadlines import scaled

from .conftest import REGISTRY

LEVELS = (Level(streams=8, tokens_per_s=100.0, ttft_p95_ms=20.5, token_p95_ms=3.25),)


def tuned(**changes) -> Tuned:
    made = Tuned(
        load=Load.CHAT, gpu="h200-sxm", vllm="0.26.0", tensor_parallel_size=1, pipeline_parallel_size=1,
        date="2026-11-29", engines=3, whole=True, digest="0123456789ab",
        flags=Flags(api_server_count=8, kv_cache_dtype=KvCacheType.FP8),
        measured=Measured(tuned=LEVELS, untold=LEVELS, plain=LEVELS),
    )  # fmt: skip
    return made.model_copy(update=changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "models.yaml"
    file.write_text(REGISTRY)
    return file


def put(path: Path, found: Tuned, name: str = "tiny", **how) -> tuple[Tuned, ...]:
    assert entry.put(path, name, found, **how) is found
    return registry.load(path).models[name].tuned


def test_every_other_line_stays(path):
    assert put(path, tuned()) == (tuned(),)
    kept = "".join(line for line in path.read_text().splitlines(keepends=True) if line in REGISTRY.splitlines(True))
    assert kept == REGISTRY
    assert put(path, tuned(), "other") == (tuned(),), "the last entry, too"
    assert registry.load(path).models["tiny"].tuned == (tuned(),)


def test_the_same_conditions_are_replaced_and_others_kept(path):
    other_gpu, documents = tuned(gpu="h100-nvl"), tuned(load=Load.DOCUMENTS)
    for one in (tuned(), other_gpu, documents):
        put(path, one)
    better = tuned(flags=Flags(), date="2026-12-01")
    assert put(path, better) == (other_gpu, documents, better)
    assert path.read_text().count("tuned:\n") == 1 + 3  # the key, and that of each one's figures


@pytest.mark.parametrize("less", [{"engines": 2}, {"whole": False}, {"whole": False, "engines": 2}])
def test_what_more_was_measured_for_stays(path, less):
    put(path, tuned(date="2026-11-01"))
    before, cut = path.read_text(), tuned(**less, flags=Flags())
    assert entry.put(path, "tiny", cut) == tuned(date="2026-11-01")
    assert path.read_text() == before
    assert put(path, cut, afresh=True) == (cut,)
    # An entry of other settings is of no use any more, however much was measured for it.
    other = tuned(**less, digest="ba9876543210")
    put(path, tuned(), afresh=True)
    assert put(path, other) == (other,)


def test_a_sweep_that_goes_on_replaces_its_own_entry(path):
    for more in (tuned(whole=False, engines=2), tuned(whole=False), tuned(), tuned(engines=4)):
        assert put(path, more) == (more,)


def test_two_sweeps_that_write_at_the_same_time_lose_nothing(path):
    """Both have read the registry before; the lock makes each read what the other has written."""
    with lock.registry(path):
        writers = [threading.Thread(target=put, args=(path, tuned(load=load))) for load in Load]
        for writer in writers:
            writer.start()
        time.sleep(0.5)
        assert path.read_text() == REGISTRY, "they wait"
    for writer in writers:
        writer.join(scaled(20))
    assert {one.load for one in registry.load(path).models["tiny"].tuned} == {*Load}
    assert [one.name for one in path.parent.iterdir()] == ["models.yaml"]


def test_a_registry_that_is_being_written_for_long(path):
    sentence = r"another `huddle tune` is writing in .*; try again"
    with lock.registry(path), pytest.raises(InputError, match=sentence), lock.registry(path, patience_s=0.2):
        pass


def test_the_shipped_registry_takes_one_in_every_entry(tmp_path):
    path = tmp_path / "models.yaml"
    path.write_text(registry.DEFAULT_PATH.read_text())
    for name in registry.load(path).models:
        assert put(path, tuned(), name) == (tuned(),)


def test_a_file_without_a_last_line_break(path):
    path.write_text(REGISTRY.rstrip("\n"))
    assert put(path, tuned(), "other") == (tuned(),)


def test_a_bundles_registry(path):
    path.write_text(yaml.safe_dump(yaml.safe_load(REGISTRY), sort_keys=False))
    assert put(path, tuned()) == (tuned(),)


@pytest.mark.parametrize(
    "text",
    [
        "models: {tiny: {model: org/tiny, description: braces}}\n",
        "models:\n  tiny: {model: org/tiny, description: braces}\n",
        "models:\n  base: &base\n    model: org/tiny\n    description: anchor\n  tiny: *base\n",
    ],
)
def test_an_entry_that_has_no_place_for_it_is_left_alone(path, text):
    path.write_text(text)
    with pytest.raises(InputError, match=r"models.tiny: has no place for what is found .* a key in each line"):
        put(path, tuned())
    assert path.read_text() == text
    assert [one.name for one in path.parent.iterdir()] == ["models.yaml"]


def test_a_look_changes_nothing(path):
    entry.look(path, "tiny")
    assert path.read_text() == REGISTRY


def test_a_link_stays_a_link(path, tmp_path):
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    assert put(link, tuned()) == (tuned(),)
    assert link.is_symlink()


@pytest.mark.parametrize(
    ("old", "new"),
    [("h200-sxm", "[]"), ("load: chat", "load: poems"), ("engines: 3", "engines: x"), ("api-server", "api-servers")],
)
def test_what_somebody_made_of_it_is_refused_with_its_line(path, old, new):
    put(path, tuned())
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(registry.RegistryError) as caught:
        registry.load(path)
    (sentence,) = caught.value.sentences
    assert re.search(r"models.yaml:\d+: models.tiny.tuned", sentence)
    assert "Traceback" not in sentence and len(sentence.splitlines()) == 1
