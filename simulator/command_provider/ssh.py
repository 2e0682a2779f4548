"""Connections to hosts, dialled as the plugin dials: again and again while a host boots, once behind a jump host."""

import base64
import io
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import paramiko

from simulator.command_provider.command import CommandFailedError, Say

FIRST_PAUSE_S, PAUSE_FACTOR, LONGEST_PAUSE_S = 0.1, 1.5, 5.0
NO_LIMIT = -1
_KEY_KINDS = (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey)


@contextmanager
def connected(connection: Mapping[str, Any], say: Say) -> Iterator[paramiko.Transport]:
    """A session on the host, through the proxy when there is one. CommandFailedError when it cannot be had."""
    with ExitStack() as stack:
        proxy = connection.get("proxy")
        if proxy is None:
            yield _dial(connection, say, stack)
            return
        outer = _dial(proxy, say, stack)
        target = (connection["host"], int(connection["port"]))
        try:
            tunnel = outer.open_channel("direct-tcpip", target, ("127.0.0.1", 0), timeout=connection["perDialTimeout"])
        except paramiko.SSHException as error:
            msg = f"the proxy {proxy['host']} cannot reach {target[0]}:{target[1]}: {error}"
            raise CommandFailedError(msg) from error
        try:
            # The plugin retries this handshake on the same, used-up connection, which never helps: once is all.
            yield _open(tunnel, connection, stack)
        except (paramiko.SSHException, EOFError, OSError) as error:
            msg = f"ssh to {target[0]} through {proxy['host']}: {error}"
            raise CommandFailedError(msg) from error


def _dial(connection: Mapping[str, Any], say: Say, stack: ExitStack) -> paramiko.Transport:
    limit, pause, attempt = int(connection["dialErrorLimit"]), FIRST_PAUSE_S, 0
    address = (connection["host"], int(connection["port"]))
    while True:
        attempt += 1
        try:
            plain = socket.create_connection(address, timeout=float(connection["perDialTimeout"]))
            return _open(plain, connection, stack)
        except paramiko.AuthenticationException as error:
            reason: Exception = error
        except (paramiko.SSHException, EOFError, OSError) as error:
            reason = error
        if limit != NO_LIMIT and attempt > limit:
            msg = f"after {attempt - 1} failed attempts: ssh to {address[0]}:{address[1]}: {reason}"
            raise CommandFailedError(msg) from reason
        say(f"dialling {address[0]}:{address[1]}, attempt {attempt}: {reason}")
        time.sleep(pause)
        pause = min(pause * PAUSE_FACTOR, LONGEST_PAUSE_S)


def _open(
    plain: socket.socket | paramiko.Channel, connection: Mapping[str, Any], stack: ExitStack
) -> paramiko.Transport:
    stack.callback(plain.close)
    transport = paramiko.Transport(plain)
    stack.callback(transport.close)
    try:
        _introduce(transport, connection)
    except BaseException:
        # At once: a host lets only so many strangers in, and the next attempt must not fail for want of a place.
        transport.close()
        plain.close()
        raise
    return transport


def _introduce(transport: paramiko.Transport, connection: Mapping[str, Any]) -> None:
    """Both sides show who they are, the host first."""
    transport.start_client(timeout=float(connection["perDialTimeout"]))
    _check_host_key(transport, connection.get("hostKey"))
    user = connection["user"]
    if connection.get("privateKey"):
        transport.auth_publickey(user, _private_key(connection["privateKey"], connection.get("privateKeyPassword")))
    elif connection.get("password") is not None:
        transport.auth_password(user, connection["password"])
    else:
        _authenticate_by_agent(transport, user, connection.get("agentSocketPath"))


def _check_host_key(transport: paramiko.Transport, expected: str | None) -> None:
    """Without an expected key any is taken, as by the plugin."""
    if expected is None:
        return
    kind, data = expected.split()[:2]
    shown = transport.get_remote_server_key()
    if shown.get_name() != kind or shown.asbytes() != base64.b64decode(data):
        msg = f"the host shows another {kind} key than connection.hostKey"
        raise paramiko.SSHException(msg)


def _private_key(text: str, password: str | None) -> paramiko.PKey:
    for kind in _KEY_KINDS:
        try:
            return kind.from_private_key(io.StringIO(text), password=password)
        except paramiko.SSHException:
            continue
    # Never the parser's own words: they may quote the key.
    msg = "connection.privateKey is not a private key that can be read"
    raise CommandFailedError(msg)


def _authenticate_by_agent(transport: paramiko.Transport, user: str, path: str | None) -> None:
    if path:
        os.environ["SSH_AUTH_SOCK"] = path
    for key in paramiko.Agent().get_keys():
        try:
            transport.auth_publickey(user, key)
        except paramiko.AuthenticationException:
            continue
        return
    msg = "no key, password or agent of the connection is accepted"
    raise paramiko.AuthenticationException(msg)
