"""A small client of Azure Resource Manager: resources, lists and actions. It knows nothing about what it asks for.

The endpoint is Azure's, through the environment's proxy if there is one, or a loopback address where the simulator's
stand-in listens (`simulator.azure.arm`), which gets no token: nothing but Azure ever does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

import httpx2

from huddle.errors import Fault, HuddleError, InputError

ENDPOINT_VARIABLE = "ARM_ENDPOINT"
AZURE = "https://management.azure.com"
CLOUDS = frozenset({AZURE, "https://management.usgovcloudapi.net", "https://management.chinacloudapi.cn"})
"""Azure's public and sovereign clouds (Microsoft's page "National clouds")."""
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
TIMEOUT_S = 60.0
Token = Callable[[], str]


class ArmError(HuddleError):
    """Azure refused, or did not answer: one sentence with the next step."""


class NotThereError(ArmError):
    """What was asked for does not exist."""


class Arm:
    """Talks to one endpoint. Close it, or use it as a context."""

    def __init__(self, endpoint: str, token: Token | None) -> None:
        self._token = token
        self._http = httpx2.Client(
            base_url=endpoint, timeout=TIMEOUT_S, follow_redirects=False, trust_env=token is not None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.close()

    @property
    def is_stand_in(self) -> bool:
        """Whether what answers is on loopback, and so not Azure."""
        return self._token is None

    def list(
        self, resource_id: str, api_version: str, *, plain: Mapping[str, str] = MappingProxyType({}), **query: str
    ) -> Iterator[Mapping[str, Any]]:
        """Every item of a list, page after page; `query` without the dollars of its names, `plain` has none.

        Raises:
            ArmError: Azure refused or did not answer.
        """
        url: str | None = _url(resource_id, api_version, query, plain)
        while url:
            page = self._ask("GET", url)
            yield from page.get("value") or []
            url = self._own(page.get("nextLink"))

    def act(self, resource_id: str, action: str, api_version: str) -> Mapping[str, Any]:
        """Run an action (`listSecrets`) on a resource.

        Raises:
            ArmError: Azure refused or did not answer.
        """
        return self._ask("POST", f"{resource_id}/{action}?api-version={api_version}")

    def send(self, method: str, resource_id: str, api_version: str) -> None:
        """Ask for something that Azure does in its own time.

        Raises:
            ArmError: Azure refused or did not answer.
        """
        self._send(method, f"{resource_id}?api-version={api_version}")

    def get(self, resource_id: str, api_version: str, **query: str) -> Mapping[str, Any]:
        """A resource, or a view of it; `query` without the dollars of its names.

        Raises:
            ArmError: Azure refused or did not answer.
        """
        return self._ask("GET", _url(resource_id, api_version, query))

    def put(self, resource_id: str, api_version: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create or change a resource; its `provisioningState` says whether Azure is done.

        Raises:
            ArmError: Azure refused or did not answer.
        """
        return self._ask("PUT", _url(resource_id, api_version, {}), body)

    def begin(self, resource_id: str, action: str, api_version: str) -> str | None:
        """Begin an action that takes a while; where Azure tells how it goes, for `ended`. None: it is done.

        Raises:
            ArmError: Azure refused or did not answer.
        """
        answer = self._send("POST", f"{resource_id}/{action}?api-version={api_version}")
        return self._own(answer.headers.get("Azure-AsyncOperation"))

    def ended(self, operation: str) -> bool:
        """Whether an action that was begun is done.

        Raises:
            ArmError: it failed, or Azure did not answer.
        """
        told = self._ask("GET", operation)
        status, error = str(told.get("status")), told.get("error") or {}
        if status in ("Failed", "Canceled"):
            raise ArmError(f"Azure refused ({error.get('code') or status}): {str(error.get('message') or '').strip()}")
        return status == "Succeeded"

    def _own(self, link: object) -> str | None:
        """The path of a link in an answer; one elsewhere is not followed, since the token would go along."""
        if not link:
            return None
        parts, own = urlsplit(str(link)), self._http.base_url
        if parts.netloc and parts.hostname != own.host:
            raise ArmError(f"Azure sends us on to {parts.hostname}, which is not {own.host}; it was not asked.")
        return f"{parts.path}?{parts.query}"

    def _ask(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        answer = self._send(method, url, body)
        return _document(answer) if answer.content else {}

    def _send(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self._token()}"} if self._token else {}
        try:
            answer = self._http.request(method, url, headers=headers, json=body)
        except httpx2.HTTPError as error:
            raise ArmError(f"Azure did not answer ({type(error).__name__}); run the command again.") from None
        if answer.is_error:
            kind = NotThereError if answer.status_code == httpx2.codes.NOT_FOUND else ArmError
            raise kind(_refusal(answer, url))
        return answer


def _url(
    resource_id: str, api_version: str, query: Mapping[str, str], plain: Mapping[str, str] = MappingProxyType({})
) -> str:
    words = {"api-version": api_version, **plain, **{f"${name}": value for name, value in query.items()}}
    return f"{resource_id}?{urlencode(words, safe='$', quote_via=quote)}"


def connect(environ: Mapping[str, str] = os.environ) -> Arm:
    """The endpoint of the environment: Azure, signed in as azure-identity finds, or a stand-in on loopback.

    Raises:
        InputError: the endpoint is neither.
    """
    endpoint = environ.get(ENDPOINT_VARIABLE) or AZURE
    if urlsplit(endpoint).hostname in LOOPBACK:
        return Arm(endpoint, None)
    if endpoint.rstrip("/") not in CLOUDS:
        allowed = ", ".join(sorted(CLOUDS))
        raise InputError(Fault(ENDPOINT_VARIABLE, "", f"{endpoint!r} is not allowed; allowed: {allowed}, or loopback"))
    return Arm(endpoint, _azure_token(endpoint.rstrip("/")))


def _azure_token(endpoint: str) -> Token:
    def token() -> str:
        from azure.core.exceptions import ClientAuthenticationError  # noqa: PLC0415 - only where Azure is asked
        from azure.identity import DefaultAzureCredential  # noqa: PLC0415

        try:
            return DefaultAzureCredential().get_token(f"{endpoint}/.default").token
        except ClientAuthenticationError:
            raise ArmError("There are no Azure credentials here; run `az login` (or set AZURE_* variables).") from None

    return token


_ROLES: Mapping[str, str] = MappingProxyType(
    {
        "/virtualmachines/": "`Virtual Machine Contributor` on the nodes",
        "/service/": "`API Management Service Contributor` on the gateway",
        "/locations/": "`Contributor` on the subscription",  # purging
        "": "`Reader` on the subscription",
    }
)
"""Who may do what a path is about, by a part of that path in lower case."""


def _document(answer: httpx2.Response) -> Mapping[str, Any]:
    """The JSON object of an answer; a proxy that wants a login answers with a page."""
    try:
        found = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ArmError("The answer is not Azure's: it is no JSON object. Is a proxy in between that wants a login?")
    return found


def _refusal(answer: httpx2.Response, url: str) -> str:
    """Azure's own code and message; its hint for 403 and 404 is rarely one, so ours follows."""
    try:
        said = answer.json()
    except ValueError:
        said = None
    inner = said.get("error") if isinstance(said, dict) else None
    error = inner if isinstance(inner, dict) else {}
    code, message = error.get("code") or answer.status_code, " ".join(str(error.get("message") or "").split())
    match answer.status_code:
        case 401 | 403:
            role = next(role for part, role in _ROLES.items() if part in url.lower())
            step = f"Sign in as somebody with the role {role}."
        case 404:
            step = "Run `up` first, or check the stack's name."
        case 409 | 412 | 429:
            step = "Azure is busy with another change; run the command again in a minute."
        case _:
            step = "Run the command again; if it stays, look into the portal's activity log."
    return f"Azure refused ({code}): {message.rstrip('.')}. {step}"
