"""huddle-apply of day 0: verify, unpack, hand over."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from hashlib import sha256

import pytest

from cloud_init.templating import text
from tests.unit.cloud_init import node as nodes
from tests.unit.cloud_init.node import Delivered, FakeNode, deliver, engine_changed
from tools.deadlines import scaled


class TestDayZeroProgram:
    """huddle-apply of day 0: verify, unpack, hand over."""

    def run(self, node: FakeNode, *words: str) -> subprocess.CompletedProcess[str]:
        path = node.fake / "huddle-apply"
        path.write_text(text("apply/huddle-apply"), encoding="utf-8")
        return subprocess.run(["bash", str(path), *words], capture_output=True, text=True, check=False)

    def test_it_unpacks_and_hands_over(self, node: FakeNode) -> None:
        bundle = nodes.packed(deliver(node.port))
        node.take(bundle)
        node.have_libraries(bundle)
        done = self.run(node, bundle.digest)
        assert done.returncode == 0, done.stderr
        assert node.serving() == bundle.digest
        assert [path.name for path in node.paths.incoming.iterdir()] == [f"huddle-{bundle.digest}.tar.bz2"]
        assert {path.name for path in node.paths.bundles.iterdir()} == {bundle.digest}
        assert self.run(node, bundle.digest).returncode == 0
        assert self.run(node, "--boot").returncode == 0

    def test_what_it_unpacks_can_be_read_by_the_services_whatever_the_callers_mask(self, node: FakeNode) -> None:
        bundle = nodes.packed(deliver(node.port))
        node.take(bundle)
        node.have_libraries(bundle)
        before = os.umask(0o077)
        try:
            assert self.run(node, bundle.digest).returncode == 0
        finally:
            os.umask(before)
        for path in [node.paths.bundles / bundle.digest, *(node.paths.bundles / bundle.digest).rglob("*")]:
            assert path.is_symlink() or path.stat().st_mode & 0o044 == 0o044, path

    def test_a_bundle_that_was_tidied_away_need_not_be_delivered_again(self, node: FakeNode) -> None:
        bundle = nodes.packed(deliver(node.port))
        node.take(bundle)
        node.have_libraries(bundle)
        assert self.run(node, bundle.digest).returncode == 0
        shutil.rmtree(node.paths.bundles)
        node.paths.current.unlink()
        assert self.run(node, bundle.digest).returncode == 0
        assert node.serving() == bundle.digest

    def test_a_boot_that_waits_for_a_delivery_brings_up_what_that_brought(self, node: FakeNode) -> None:
        first, second = (nodes.packed(made) for made in (deliver(node.port), engine_changed(node.port)))
        for bundle in (first, second):
            node.take(bundle)
            node.have_libraries(bundle)
            assert self.run(node, bundle.digest).returncode == 0
        node.paths.current.unlink()
        node.paths.current.symlink_to(node.paths.bundles / first.digest)
        with node.paths.lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            waiting = subprocess.Popen(
                ["bash", str(node.fake / "huddle-apply"), "--boot"], stdout=subprocess.PIPE, text=True
            )
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == "huddle-apply: waiting for another huddle-apply to end\n"
            node.paths.current.unlink()
            node.paths.current.symlink_to(node.paths.bundles / second.digest)
        assert waiting.wait(scaled(60)) == 0
        waiting.stdout.close()
        assert node.serving() == node.status()["bundle"] == second.digest

    def test_an_altered_archive_is_refused(self, node: FakeNode) -> None:
        bundle = nodes.packed(deliver(node.port))
        node.take(bundle, bundle.packed[:-1] + bytes([bundle.packed[-1] ^ 1]))
        done = self.run(node, bundle.digest)
        assert done.returncode == 1
        assert f"expected {bundle.digest}: truncated or altered; nothing was changed" in done.stderr
        assert node.serving() is None
        assert not node.paths.bundles.exists()

    def test_a_truncated_archive_is_refused(self, node: FakeNode) -> None:
        bundle = nodes.packed(deliver(node.port))
        node.take(bundle, bundle.packed[: len(bundle.packed) // 2])
        assert self.run(node, bundle.digest).returncode == 1
        assert node.serving() is None

    def test_an_archive_that_cannot_be_unpacked_leaves_nothing_behind(self, node: FakeNode) -> None:
        bad = Delivered({}, sha256(b"not an archive").hexdigest(), b"not an archive")
        node.take(bad)
        assert self.run(node, bad.digest).returncode != 0
        assert list(node.paths.bundles.iterdir()) == []

    @pytest.mark.parametrize("words", [(), ("latest",), ("A" * 64,), ("0" * 63,)])
    def test_wrong_use_is_said_with_exit_code_2(self, node: FakeNode, words: tuple[str, ...]) -> None:
        done = self.run(node, *words)
        assert done.returncode == 2
        assert "usage: huddle-apply DIGEST" in done.stderr

    def test_a_bundle_that_was_not_delivered(self, node: FakeNode) -> None:
        done = self.run(node, "0" * 64)
        assert done.returncode == 2
        assert "deliver the bundle first" in done.stderr

    def test_boot_before_the_first_bundle_is_no_failure(self, node: FakeNode) -> None:
        assert self.run(node, "--boot").returncode == 0
