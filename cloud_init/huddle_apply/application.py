"""One bundle on its way to serving: prepare beside what serves, switch, restart what changed, go back if need be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

from . import files, parts
from .failure import ApplyError
from .installed import credentials, libraries, rootfs
from .installed.credentials import Vault
from .ledger import Ledger, State, say
from .machine import boot, commands, disks, systemd, vm_agent
from .models import staging, store
from .models.copies import Copies
from .paths import NodePaths
from .services import readiness, restarts
from .unpacked import Unpacked

LOCK_FOR_PARENT = "--locked"
"""The option that says: your caller holds the lock."""
_GOING_BACK = "HUDDLE_GOING_BACK"
"""In the environment of a program that is gone back to: what fails then must not go back to what failed before it. A
variable, because a bundle made before there was one ignores it."""
_ARCHIVES_KEPT = 3


class Application:
    """One bundle on its way to serving."""

    def __init__(self, paths: NodePaths, host: str, digest: str, vault: Vault | None, *, at_boot: bool) -> None:
        self._paths, self._host, self._digest, self._vault = paths, host, digest, vault
        self._at_boot = at_boot
        self._current = paths.serving_digest()
        self._keep = at_boot
        self._halfway = False
        self._going_back = bool(os.environ.get(_GOING_BACK))
        self._before = self._last_good() or (None if self._going_back else self._current)
        self._ledger = Ledger(paths, host, digest)

    def _last_good(self) -> str | None:
        """The bundle that last answered. The link may name one that never did: cut off between switch and answer."""
        good = files.read_json(self._paths.state).get("good")
        return good if isinstance(good, str) and (self._paths.bundles / good).is_dir() else None

    def prepare(self) -> int:
        """Bring everything that the bundle needs. Nothing that serves is touched; `run` then has little left to do."""
        try:
            with self._ledger.phase("bundle"):
                bundle = self._open()
            self._prepare(bundle)
        except ApplyError as failure:
            return self._failed(failure, switched=False)
        return self._end(State.PREPARED, self._current, None, 0)

    def run(self) -> int:
        """Prepare beside what serves, switch, restart what changed, wait for answers; go back if they don't come."""
        switched = False
        try:
            with self._ledger.phase("bundle"):
                bundle = self._open()
            self._prepare(bundle)
            switched = True
            self._activate(bundle)
        except ApplyError as failure:
            return self._failed(failure, switched=switched)
        self._remember_good(bundle)
        return self._end(State.SERVING, self._digest, None, 0)

    def _open(self) -> Unpacked:
        """The bundle as unpacked here. A damaged one is removed, so that the next run unpacks its archive again."""
        try:
            return Unpacked.open(self._paths.bundles, self._digest, self._host)
        except ApplyError:
            if self._digest not in (self._current, self._before):
                shutil.rmtree(self._paths.bundles / self._digest, ignore_errors=True)
            raise

    def _prepare(self, bundle: Unpacked) -> None:
        """Everything that can be done while the old bundle serves."""
        ledger, node, paths = self._ledger, bundle.node, self._paths
        with ledger.phase("day-0"):
            boot.wait_for_cloud_init(paths, ledger, bundle.deadline_s("cloud_init"))
        with ledger.phase("clock"):
            boot.wait_for_clock(ledger, bundle.deadline_s("clock"))
        with ledger.phase("driver"):
            ledger.note(gpus=readiness.check_gpus(node["expects"]["gpus"]))
        with ledger.phase("packages"):
            left_s = commands.countdown(bundle.deadline_s("packages"))
            boot.install_packages(node["packages"], left_s)
            boot.hold_packages(bundle.path / "bin/huddle-hold", ledger, left_s)
        with ledger.phase("credentials"):
            credentials.fetch(paths, node["credentials"], self._vault, ledger, bundle.deadline_s("credentials"))
            for name in node["generated_credentials"]:
                credentials.generate(paths, name)
        with ledger.phase("disks"):
            disks.wait_for_workspace(paths, node["enable"], bundle.deadline_s("disks"))
        with ThreadPoolExecutor(1) as pool:
            installing = pool.submit(self._install_libraries, bundle)
            if not self._at_boot:  # a boot's mount is new, and the unit at boot may not touch disks
                with ledger.phase("store"):
                    self._open_store(bundle)
            # Copying from the store needs no library, so it goes on meanwhile; the hub's client is one of them.
            left_s = commands.countdown(bundle.deadline_s("staging"))
            if not staging.in_store(paths, bundle.model):
                installing.result()
            with ledger.phase("staging"):  # that wait is part of its time: Azure's for all is limited
                self._stage_as_service_user(bundle, left_s())
            installing.result()

    def _open_store(self, bundle: Unpacked) -> None:
        """A store that cannot be had does not stop a node that has a copy. One without must not ask the hub instead."""
        try:
            store.reopen(self._paths, bundle.node["store"], bundle.deadline_s("store"))
        except ApplyError as failure:
            if not staging.is_here(self._paths, bundle.model):
                raise
            self._ledger.warn(str(failure))

    def _stage_as_service_user(self, bundle: Unpacked, deadline_s: float) -> None:
        """The same program that the unit runs at boot, as the same user, so that either can go on with the files."""
        self._keep = self._at_boot or self._keeps_copy(bundle)
        keep = ["--keep"] if self._keep else []
        command = [sys.executable, "-B", str(bundle.path / "apply"), bundle.digest, "--stage", *keep]
        token = {credentials.HUB_TOKEN: credentials.hub_token(self._paths)}
        commands.stream(command, deadline_s=deadline_s, env=token)

    def _install_libraries(self, bundle: Unpacked) -> None:
        with self._ledger.phase("libraries"):
            libraries.install(self._paths, bundle, bundle.deadline_s("libraries"))

    def _activate(self, bundle: Unpacked) -> None:
        ledger, paths = self._ledger, self._paths
        with ledger.phase("switch"):
            state, copies = files.read_json(paths.state), self._copies(bundle)
            copy = None if copies.manual else copies.served if self._keep else copies.staged
            services = [self._with_inputs(service, copy) for service in bundle.node["services"]]
            units = [service["unit"] for service in services]
            running = state.get("services", {})
            now = systemd.states([*units, *(unit for unit in running if unit not in units)])
            alive = {unit for unit, state in now.items() if state.active in ("active", "activating", "reloading")}
            steady = {unit for unit in alive if now[unit].active != "activating"}
            due = restarts.plan(services, running, alive, steady)
            self._halfway = True
            systemd.stop(due.stop)
            systemd.disable(due.remove)
            content = {path: (data, mode) for path, data, mode in bundle.rootfs()}
            changes = rootfs.sync(paths.root, content, state.get("installed", {}))
            files.link(paths.current, paths.bundles / bundle.digest)
            if copy is not None:
                with commands.as_service_user():
                    copies.serve(copy)
            # What was started is noted before the start: a crash here starts it once more, never too seldom.
            kept = {unit: print_ for unit, print_ in running.items() if unit in units and unit not in due.start}
            self._remember(installed=rootfs.digests(content), services=kept)
        with ledger.phase("services"):
            if changes.touches("etc/systemd/"):
                systemd.daemon_reload()
            if changes.touches("etc/sysctl.d/"):
                systemd.apply_sysctl()
            systemd.enable([*bundle.node["enable"], *units])
            systemd.start([*bundle.node["enable"], *due.start])
            self._halfway = False
            systemd.reload(due.reload)
            self._remember(services={s["unit"]: {key: s[key] for key in ("restart", "reload")} for s in services})
            ledger.note(restarted=list(due.start), reloaded=list(due.reload))
        with ledger.phase("readiness"):
            readiness.wait(paths, bundle, ledger, bundle.deadline_s("readiness"))
        if self._current is not None and not self._at_boot and readiness.WRAPPER in due.start:
            with ledger.phase("rejoin"):  # the next node leaves when this command has ended
                time.sleep(bundle.node.get("rejoin_s", 0))

    def _copies(self, bundle: Unpacked) -> Copies:
        return Copies.of(self._paths, bundle.model["directory"])

    def _keeps_copy(self, bundle: Unpacked) -> bool:
        """Whether the copy that is served stays. Else the version that counts is taken, with a way back.

        Nodes that hold parts of one model must take the same version at the same time: by its digest in the registry.
        """
        unnamed = bundle.model["across_nodes"] and not bundle.model["digest"]
        return unnamed and staging.is_served(self._paths, bundle.model)

    def _with_inputs(self, service: dict[str, Any], copy: str | None) -> dict[str, Any]:
        """A service whose secret or whose copy of the model has changed is a changed service."""
        digest = sha256(service["restart"].encode())
        if service["reads_model"]:
            digest.update(f"{copy}\0".encode())
        for name in service["credentials"]:
            digest.update((self._paths.credentials / name).read_bytes())
        return {**service, "restart": digest.hexdigest()}

    def _remember(self, **values: Any) -> None:
        vault = {"vault": {"uri": self._vault.uri, "client_id": self._vault.client_id}} if self._vault else {}
        state = {**files.read_json(self._paths.state), **vault, **values}
        files.write_json(self._paths.state, state, 0o600)

    def _failed(self, failure: ApplyError, *, switched: bool) -> int:
        before, reason, log = self._before, str(failure), failure.log
        if not switched:
            serves = self._current is not None and self._current == before != self._digest
            kept = f"; bundle {before[:12]} serves as before" if before and serves else ""
            if self._current is not None and self._lacks_copy(self._current):
                kept = f"; bundle {self._current[:12]} has no copy of its model any more: its engine cannot start again"
            return self._end(State.FAILED, self._current, reason + kept, 1, log)
        copy = None if self._going_back else self._go_back_to_copy(before)
        again = self._halfway and not self._going_back  # its services may be stopped
        if before is None or (before == self._digest and copy is None and not again):
            return self._end(State.FAILED, self._digest, reason, 1, log)
        what = f"copy {copy} of the model" if before == self._digest and copy else f"bundle {before[:12]}"
        say(f"{reason}; going back to {what}")
        with self._ledger.phase("rollback"):
            # By its own program: each bundle knows how it is to be applied.
            program = [sys.executable, "-B", str(self._paths.bundles / before / "apply"), before, "--boot"]
            env = {**os.environ, _GOING_BACK: "1"}
            # What it says of itself goes to stdout: the last words on stderr are about the bundle that was delivered.
            done = subprocess.run([*program, LOCK_FOR_PARENT], env=env, stderr=subprocess.STDOUT, check=False)
            back = done.returncode == 0
        if back:
            reason += f"; {what} serves again"
            # At boot the node serves and nobody waits for the result; another run would only lose the reason.
            return self._end(State.ROLLED_BACK, before, reason, 0 if self._at_boot else 1, log)
        return self._end(State.FAILED, before, f"{reason}; {what} does not serve either", 1, log)

    def _lacks_copy(self, digest: str) -> bool:
        """Whether the copy that a bundle needs is gone: it had to make room. Not asked of a disk that is broken."""
        try:
            bundle = Unpacked.open(self._paths.bundles, digest, self._host)
            return not staging.is_served(self._paths, bundle.model)
        except (ApplyError, OSError):
            return False

    def _go_back_to_copy(self, before: str | None) -> str | None:
        """Serve the copy of the model that last answered, where another is served now. Returns its name."""
        if before is None:
            return None
        try:
            copies = self._copies(Unpacked.open(self._paths.bundles, before, self._host))
            good = copies.good
            if copies.manual or good is None or good == copies.served or not copies.record(good):
                return None
            with commands.as_service_user():
                copies.serve(good)
        except (ApplyError, OSError) as error:
            say(f"warning: the copy of the model that answered last cannot be served ({error})")
            return None
        return good

    def _remember_good(self, bundle: Unpacked) -> None:
        """What to go back to from now on. A disk that is full by now takes nothing from a node that serves."""
        try:
            with commands.as_service_user():
                self._copies(bundle).note_good()
            self._remember(good=self._digest)
            self._tidy()
        except OSError as error:
            self._ledger.warn(
                f"{error.filename} cannot be written ({error.strerror}); a later failure goes back further"
            )

    def _tidy(self) -> None:
        """Keep this bundle and the one before, what they use of environments and parts, and what was delivered last."""
        kept = {self._digest, self._before}
        archives = sorted(self._paths.incoming.glob("*.tar.bz2"), key=lambda path: path.stat().st_mtime)
        for archive in archives[:-_ARCHIVES_KEPT]:
            archive.unlink(missing_ok=True)
        for path in self._paths.bundles.iterdir():
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)
        parts.tidy(self._paths, list(self._paths.bundles.iterdir()))
        used = {link.resolve() for name in libraries.LINKS for link in self._paths.bundles.glob(f"*/{name}")}
        for path in self._paths.venvs.iterdir() if self._paths.venvs.is_dir() else ():
            if path.resolve() not in used:
                shutil.rmtree(path, ignore_errors=True)

    def _end(self, state: State, serving: str | None, reason: str | None, code: int, log: str = "") -> int:
        # This restarts the agent that runs commands: at boot one may be running, and one follows what is prepared.
        if not (self._at_boot or state is State.PREPARED):
            vm_agent.look_often(self._paths, self._ledger)
        self._ledger.note(weights=self._weights(serving) if serving else None)
        return self._ledger.end(state, serving, reason, code, log=log)

    def _weights(self, digest: str) -> dict[str, str | None] | None:
        """Which copy of which model a bundle's engine reads; None where that cannot be told."""
        try:
            bundle = Unpacked.open(self._paths.bundles, digest, self._host)
            copies = self._copies(bundle)
            return {"model": bundle.model["name"], "version": "by hand" if copies.manual else copies.served}
        except (ApplyError, OSError):
            return None
