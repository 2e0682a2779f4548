"""huddle-apply: bring a node to a bundle, or say in one sentence why not, with the old bundle still serving.

    apply DIGEST [--vault-uri URI --identity-client-id ID]
                   stage, check, switch, restart what changed, wait for answers; go back if they don't come
    apply DIGEST --prepare [...]
                   only what can be done while the old bundle serves: packages, secrets, libraries, a copy of the model
    apply --boot   the same for the current bundle, with the copy of the model that lies here
    apply [DIGEST] --stage [--keep]
                   only make the newest copy of the model ready, for the current bundle or for that one;
                   with --keep: a whole copy stays, another is served at once
    apply --open-store
                   only mount the model store again, once no publication is running

Exit codes: 0 serves, 1 failed (with the log's end on stderr), 2 wrong use.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import nullcontext

from . import files
from .alone import alone
from .application import LOCK_FOR_PARENT, Application
from .failure import ApplyError
from .installed import credentials
from .installed.credentials import Vault
from .ledger import say
from .machine import commands
from .models import staging, store
from .paths import NodePaths
from .unpacked import Unpacked


def main(arguments: Sequence[str]) -> int:
    """Run one of the forms."""
    options = _parse(arguments)
    os.umask(0o022)  # a run command's own mask would lock the services out of their libraries
    paths = NodePaths.from_environment()
    host = socket.gethostname()
    if options.stage:
        return _stage(paths, host, options.digest, keep=options.keep)
    if options.open_store:
        return _open_store(paths, host)
    with nullcontext() if options.locked else alone(paths.lock, "huddle-apply"):
        digest = options.digest or paths.serving_digest()  # now: who held the lock may have switched
        if digest is None:
            say("no bundle has been applied yet")
            return 0
        application = Application(paths, host, digest, _vault(options, paths), at_boot=options.boot)
        return application.prepare() if options.prepare else application.run()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="huddle-apply", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("digest", nargs="?", help="the bundle's digest (64 hexadecimal digits)")
    parser.add_argument("--vault-uri", help="key vault that holds the node's secrets")
    parser.add_argument("--identity-client-id", help="client id of the managed identity that may read them")
    parser.add_argument("--prepare", action="store_true", help="go no further than the old bundle serves")
    parser.add_argument("--boot", action="store_true", help="re-apply the current bundle")
    parser.add_argument("--stage", action="store_true", help="only stage the model files")
    parser.add_argument("--keep", action="store_true", help="with --stage: a whole copy that is served stays")
    parser.add_argument("--open-store", action="store_true", help="only mount the model store again")
    parser.add_argument(LOCK_FOR_PARENT, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if bool(options.vault_uri) != bool(options.identity_client_id):
        parser.error("--vault-uri and --identity-client-id go together")
    if not (options.digest or options.boot or options.stage or options.open_store):
        parser.error("which bundle? give its digest, --boot, --stage or --open-store")
    return options


def _vault(options: argparse.Namespace, paths: NodePaths) -> Vault | None:
    """The named vault, else the one of the last time."""
    if options.vault_uri:
        return Vault(options.vault_uri, options.identity_client_id)
    known = files.read_json(paths.state).get("vault")
    return Vault(known["uri"], known["client_id"]) if known else None


def _stage(paths: NodePaths, host: str, digest: str | None, *, keep: bool) -> int:
    """Stage the model files of a bundle. What went wrong is the last line on stderr."""
    digest = digest or paths.serving_digest()
    if digest is None:
        sys.stderr.write("no bundle has been applied yet\n")
        return 1
    try:
        bundle = Unpacked.open(paths.bundles, digest, host)
        token = os.environ.get(credentials.HUB_TOKEN) or credentials.hub_token(paths)
        commands.become_service_user()  # by hand it is root's: what root made here the unit could not go on with
        staging.stage(paths, bundle.model, bundle.path, token, keep=keep)
    except ApplyError as error:
        sys.stderr.write(f"{error.log}\n{error}\n" if error.log else f"{error}\n")
        return 1
    return 0


def _open_store(paths: NodePaths, host: str) -> int:
    """Before the unit stages. A node that has its copy needs no store; without one it waits for the store."""
    digest = paths.serving_digest()
    try:
        if digest is not None:
            bundle = Unpacked.open(paths.bundles, digest, host)
            if not staging.is_served(paths, bundle.model):  # else nothing is needed from there
                store.reopen(paths, bundle.node["store"], bundle.deadline_s("store"))
    except (ApplyError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0
