"""Preparing an admitted request's body: here, or in the process beside when it is large."""

from huddle.wrapper.access import auth
from huddle.wrapper.body.prepare import Prepared, Preparer
from huddle.wrapper.claims import Admitted
from huddle.wrapper.helper_process import HelperProcess
from huddle.wrapper.routes import Route


def prepare(admitted: Admitted, body: bytes) -> Prepared:
    """Raises `RequestError`."""
    return _preparer(admitted).prepare(admitted.route, body, _salt(admitted))


async def prepare_beside(helper: HelperProcess, admitted: Admitted, body: bytes) -> Prepared:
    """Raises `RequestError` and `HelperError`."""
    preparer = _preparer(admitted)
    prepared: Prepared
    prepared, made = await helper.run(_prepare_apart, preparer, admitted.route, _salt(admitted), body=body)
    prepared.body, prepared.served = made, preparer.served.get(prepared.served.name, prepared.served)
    return prepared


def _prepare_apart(preparer: Preparer, route: Route, salt: str, body: bytes) -> tuple[Prepared, bytes]:
    prepared = preparer.prepare(route, body, salt)
    made, prepared.body = prepared.body, b""
    return prepared, made


def _preparer(admitted: Admitted) -> Preparer:
    return admitted.runtime.preparer(admitted.caller)


def _salt(admitted: Admitted) -> str:
    return auth.cache_salt(admitted.runtime.cache_salt_secret, admitted.caller)
