"""Parts of bundles: what seldom changes is delivered once, kept on the node, and named where it is lacking."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_init.bundle import Bundle, Kind, Piece, parts, seal
from cloud_init.delivery import run_command
from cloud_init.huddle_apply import parts as on_node
from cloud_init.huddle_apply.paths import NodePaths
from cloud_init.templating import text
from tests.unit.cloud_init import node as nodes
from tests.unit.cloud_init import rendered
from tests.unit.cloud_init.node import Delivered, FakeNode, deliver, engine_changed
from tests.unit.cloud_init.rendered import KINDS, built, plans

KIB = 1024
PROMPT = "prompts/models/llama-3.2-3b.txt"
FILES = {"wheels/a.whl": b"wheel", "requirements/engine.lock": b"lock", "prompts/p.txt": b"prompt"}
TEXTS = st.dictionaries(st.sampled_from([*FILES, "bin/huddle", "apply/__main__.py"]), st.binary(max_size=20))


def apply(node: FakeNode, bundle: Delivered, *options: str) -> subprocess.CompletedProcess[str]:
    """Day 0's program, which does not know of parts, hands over to the bundle's own."""
    node.have_libraries(bundle)
    path = node.fake / "huddle-apply"
    path.write_text(text("apply/huddle-apply"), encoding="utf-8")
    words = options or (bundle.digest,)
    return subprocess.run(["bash", str(path), *words], capture_output=True, text=True, check=False)


def first(node: FakeNode) -> Delivered:
    return nodes.packed(deliver(node.port))


def another_prompt(node: FakeNode) -> Delivered:
    return nodes.packed(deliver(node.port, replace={PROMPT: b"Rhyme.\n"}))


def another_lock(node: FakeNode, number: int = 1) -> Delivered:
    return nodes.packed(deliver(node.port, replace={"requirements/engine.lock": f"# lock {number}\n".encode()}))


def piece(bundle: Delivered, name: str) -> Piece:
    return next(one for one in bundle.pieces if one.name == name)


class TestSizes:
    """What travels when what changes. Azure's own limit for a script is unknown; ours is 192 KiB."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_what_often_changes_is_small_and_every_script_has_room(self, kind: str) -> None:
        plan = plans()[kind]
        assert len(rendered.script(plan, plan.nodes[0], built(kind))) <= 40 * KIB
        for one in built(kind).pieces:
            assert len(run_command.piece_script(one)) <= run_command.SCRIPT_LIMIT_BYTES

    def test_a_prompt_and_a_product_change_no_part(self) -> None:
        changed = rendered.built_of(
            serving={"models": {rendered.MODEL: {"system_prompt": "Be brief."}}},
            gateway={"products": {"more": {"display_name": "More"}}},
        )
        assert changed.digest != rendered.built_of().digest
        assert changed.pieces == rendered.built_of().pieces

    def test_a_wheel_of_twice_the_size_has_room(self) -> None:
        """It does not compress at all here: today's wheel is compressed to a quarter."""
        today = sum(len(one.content) for one in built("dev").pieces if one.name.startswith("package"))
        made = seal({**built("dev").files, "wheels/more.whl": os.urandom(today)})
        *wheels, installer = [one.name for one in made.pieces]
        assert installer == "installer"
        assert wheels == ["package", *(f"package-{number}" for number in range(2, len(wheels) + 1))]
        assert sum(len(one.content) for one in made.pieces[:-1]) > 1.9 * today
        for one in made.pieces:
            assert len(run_command.piece_script(one)) <= run_command.SCRIPT_LIMIT_BYTES

    def test_the_largest_script_of_a_piece_is_within_our_limit(self) -> None:
        worst = Piece("package-99", "0" * 64, b"\xff" * parts.PIECE_BYTES)
        assert len(run_command.piece_script(worst)) <= run_command.SCRIPT_LIMIT_BYTES


class TestDigests:
    """Names that cover what they name."""

    @given(files=TEXTS, path=st.sampled_from(list(FILES)), content=st.binary(max_size=20))
    def test_the_bundles_digest_covers_every_file_and_a_part_only_its_own(
        self, files: Mapping[str, bytes], path: str, content: bytes
    ) -> None:
        before, after = seal({**FILES, **files}), seal({**FILES, **files, path: content})
        same = before.files[path] == content
        assert (before.digest == after.digest) is same
        kind = parts.kind_of(path)
        changed = (
            {one.name for one in after.pieces} if same else {one.name for one in set(after.pieces) - set(before.pieces)}
        )
        assert same or changed == ({kind.value} if kind else set())

    @given(files=TEXTS)
    def test_equal_files_make_equal_bytes_whatever_their_order(self, files: Mapping[str, bytes]) -> None:
        again = seal(dict(reversed(list(files.items()))))
        made = seal(files)
        assert (again.archive, again.pieces) == (made.archive, made.pieces)
        for one in made.pieces:
            assert one.digest == sha256(one.content).hexdigest()

    @given(files=TEXTS)
    def test_every_file_comes_with_the_bundle_or_with_one_part(self, files: Mapping[str, bytes]) -> None:
        made = seal(files)
        brought = json.loads(made.files["manifest.json"])["parts"]
        assert {Kind(kind) for kind in brought} == {parts.kind_of(path) for path in files} - {None}
        assert sorted(path for part in brought.values() for path in part["files"]) == sorted(
            path for path in files if parts.kind_of(path)
        )


class TestDelivery:
    """The script that brings a piece."""

    def run(self, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
        moved = script.replace("/opt/huddle/parts", str(folder))
        return subprocess.run(["sh"], input=moved, capture_output=True, text=True, umask=0o077, check=False)

    def test_it_lays_the_piece_where_the_program_looks_for_it_and_twice_is_the_same(self, tmp_path: Path) -> None:
        for one in built("dev").pieces:
            script = run_command.piece_script(one)
            assert f"{NodePaths(Path('/')).parts}/{one.name}/{one.digest}\n" in script
            for _ in range(2):
                done = self.run(script, tmp_path)
                assert (done.returncode, done.stderr) == (0, "")
                (path,) = (tmp_path / one.name).iterdir()
                assert (path.name, path.read_bytes()) == (one.digest, one.content)
                assert path.stat().st_mode & 0o777 == 0o644

    def test_one_that_was_cut_off_on_its_way_fails_and_leaves_none(self, tmp_path: Path) -> None:
        one = built("dev").pieces[0]
        lines = run_command.piece_script(one).splitlines(keepends=True)
        done = self.run("".join(lines[:9] + lines[14:]), tmp_path)
        assert done.returncode != 0
        assert not (tmp_path / one.name / one.digest).exists()

    def test_it_is_the_same_for_every_node_and_stack(self) -> None:
        dev, prod = (
            {one.name: run_command.piece_script(one) for one in built(kind).pieces} for kind in ("dev", "prod")
        )
        assert dev == prod
        assert not any("huddleai" in line for line in dev["package"].splitlines() if line.startswith("#"))


class TestOnTheNode:
    """Bundles and parts on a node, by the programs that run there."""

    def test_a_prompts_change_needs_no_part_again(self, node: FakeNode) -> None:
        one, two = first(node), another_prompt(node)
        node.take(one)
        assert apply(node, one).returncode == 0
        assert two.pieces == one.pieces
        node.take(Delivered(two.files, two.digest, two.packed))
        done = apply(node, two)
        assert done.returncode == 0, done.stderr
        assert node.serving() == two.digest
        for path, content in two.files.items():
            assert (node.paths.current / path).read_bytes() == content

    @pytest.mark.parametrize("name", ["package", "installer"])
    def test_a_lacking_part_is_named_and_nothing_is_changed(self, node: FakeNode, name: str) -> None:
        bundle = first(node)
        node.take(bundle)
        lacking = piece(bundle, name)
        (node.paths.parts / lacking.relative).unlink()
        done = apply(node, bundle)
        assert done.returncode == 1
        sentence = (
            f"part {name} is not on this node: there is no {node.paths.parts}/{name}/{lacking.digest}; "
            "deliver it again (docs/runbooks/nodes.md, 'A part is lacking')"
        )
        assert done.stderr == f"huddle-apply: parts: {sentence}\n"
        status = node.status()
        assert json.loads(done.stdout.splitlines()[-1]) == status
        assert (status["state"], status["failed_phase"], status["reason"]) == ("failed", "parts", sentence)
        assert (status["bundle"], status["wanted"], node.calls("start", "stop")) == (None, bundle.digest, [])
        node.take_piece(lacking)
        assert apply(node, bundle).returncode == 0
        assert node.serving() == bundle.digest

    def test_while_a_part_is_lacking_the_bundle_before_serves(self, node: FakeNode) -> None:
        one, two = first(node), another_lock(node)
        node.take(one)
        apply(node, one)
        node.take(Delivered(two.files, two.digest, two.packed))
        assert apply(node, two).returncode == 1
        status = node.status()
        assert status["reason"].endswith(f"; bundle {one.digest[:12]} serves as before")
        assert status["bundle"] == node.serving() == one.digest
        assert apply(node, one, "--boot").returncode == 0

    @pytest.mark.parametrize("content", [b"", b"cut off", None])
    def test_a_truncated_part_is_refused_and_its_delivery_mends_it(self, node: FakeNode, content: bytes | None) -> None:
        bundle = first(node)
        node.take(bundle)
        one = piece(bundle, "package")
        node.take_piece(one, one.content[:-1] if content is None else content)
        done = apply(node, bundle)
        assert done.returncode == 1
        assert f"part package in {node.paths.parts}/package/{one.digest} has digest " in done.stderr
        assert "truncated or altered" in done.stderr
        assert node.serving() is None
        node.take_piece(one)
        assert apply(node, bundle).returncode == 0

    def test_a_part_of_two_pieces_needs_both(self, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(parts, "PIECE_BYTES", 20_000)
        bundle = first(node)
        names = [one.name for one in bundle.pieces]
        assert {"installer", "installer-2"} <= set(names)
        node.take(bundle)
        second = piece(bundle, "installer-2")
        (node.paths.parts / second.relative).unlink()
        assert (
            f"part installer-2 is not on this node: there is no {node.paths.parts}/installer-2/"
            in apply(node, bundle).stderr
        )
        node.take_piece(second)
        assert apply(node, bundle).returncode == 0

    def test_what_is_damaged_on_the_disk_is_mended_from_the_kept_part(self, node: FakeNode) -> None:
        bundle = first(node)
        node.take(bundle)
        apply(node, bundle)
        lock = node.paths.current / "requirements/engine.lock"
        whole = lock.read_bytes()
        lock.write_bytes(b"")
        assert apply(node, bundle, "--boot").returncode == 0
        assert lock.read_bytes() == whole

    def test_a_bundle_that_is_whole_needs_no_part_to_boot_or_to_be_gone_back_to(self, node: FakeNode) -> None:
        one, two = first(node), nodes.packed(engine_changed(node.port))
        node.take(one)
        apply(node, one)
        node.take(two)
        node.dumb.add(two.digest)
        shutil.copytree(node.paths.parts, node.root / "parts")
        done = apply(node, two)
        assert done.returncode == 1
        assert (node.status()["state"], node.serving()) == ("rolled-back", one.digest)
        shutil.rmtree(node.paths.parts)
        assert apply(node, one, "--boot").returncode == 0


class TestOneFormatAfterAnother:
    """Bundles in one piece, as they were before there were parts."""

    def test_from_one_piece_to_parts_and_back(self, node: FakeNode) -> None:
        old, new = nodes.in_one_piece(deliver(node.port)), another_prompt(node)
        node.take(old)
        assert apply(node, old).returncode == 0
        node.take(new)
        assert apply(node, new).returncode == 0
        assert node.serving() == new.digest
        assert apply(node, old).returncode == 0
        assert node.serving() == old.digest
        assert {path.name for path in node.paths.parts.rglob("*") if path.is_file()} == {
            one.digest for one in new.pieces
        }

    def test_a_bundle_with_parts_that_does_not_answer_gives_way_to_one_in_one_piece(self, node: FakeNode) -> None:
        old, new = nodes.in_one_piece(deliver(node.port)), nodes.packed(engine_changed(node.port))
        node.take(old)
        apply(node, old)
        node.take(new)
        node.dumb.add(new.digest)
        done = apply(node, new)
        assert done.returncode == 1
        assert (node.status()["state"], node.serving()) == ("rolled-back", old.digest)


class TestTidying:
    """Which pieces stay."""

    def digests(self, node: FakeNode, name: str) -> set[str]:
        return {path.name for path in (node.paths.parts / name).iterdir()}

    def test_the_last_three_of_each_stay_and_those_of_kept_bundles(self, node: FakeNode) -> None:
        bundles = [another_lock(node, number) for number in range(6)]
        for age, bundle in enumerate(bundles):
            node.take(bundle)
            path = node.paths.parts / piece(bundle, "installer").relative
            os.utime(path, (age, age))
        apply(node, bundles[0])
        wanted = {piece(bundle, "installer").digest for bundle in (bundles[0], *bundles[3:])}
        assert self.digests(node, "installer") == wanted
        assert self.digests(node, "package") == {piece(bundles[0], "package").digest}

    def test_a_piece_that_is_being_written_stays(self, tmp_path: Path) -> None:
        paths = NodePaths(tmp_path)
        folder = paths.parts / "package"
        folder.mkdir(parents=True)
        names = [f"{number:064}" for number in range(4)]
        for age, name in enumerate([*names, f"{names[0]}.part"]):
            (folder / name).touch()
            os.utime(folder / name, (age, age))
        on_node.tidy(paths, [])
        assert {path.name for path in folder.iterdir()} == {*names[1:], f"{names[0]}.part"}

    def test_no_parts_at_all_is_no_failure(self, tmp_path: Path) -> None:
        on_node.tidy(NodePaths(tmp_path), [])


def test_the_entry_needs_nothing_that_comes_with_a_part(tmp_path: Path) -> None:
    """Run alone, as on a node without any part, by a Python that sees no other code of ours."""
    bundle: Bundle = built("dev")
    own = {path: content for path, content in bundle.files.items() if parts.kind_of(path) is None}
    rendered.write(own, tmp_path / bundle.digest)
    command = [sys.executable, "-I", "-B", str(tmp_path / bundle.digest / "apply"), bundle.digest]
    environment = {**os.environ, "HUDDLE_ROOT": str(tmp_path / "root")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    for one in bundle.pieces:
        assert f"part {one.name} is not on this node" in line
