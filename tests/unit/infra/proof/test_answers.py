"""Each assumption's answer follows from what Azure said, and from nothing else."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from infra.operations.arm_subscription import Locked, SoftDeleted
from infra.proof import answers, assumptions
from infra.proof.answers import Verdict
from infra.proof.evidence import Evidence, Reply, Run, Trial, Unread
from tests.unit.builders import plan

NOTHING = Unread("nobody asked")
EMPTY = Evidence(**{field.name: NOTHING for field in dataclasses.fields(Evidence)})
PREMIUM_V2 = {"gateway": {"tier": "PremiumV2", "inbound": "internal"}}
SIZE = answers.SMALLEST_H100


def body(**properties: Any) -> dict[str, Any]:
    return {"name": "huddleai-dev-abc", "properties": properties}


def run(started: str, output: str = "") -> Run:
    return Run(started, output, {}, 7.0)


def trial(first: str = "1", equal: str = "1", changed: str = "2", output: str = "") -> Trial:
    return Trial(run(first, output), run(equal), run(changed))


def command(output: str = "", **more: Any) -> dict[str, Any]:
    return body(instanceView={"startTime": "12:00", "output": output}, **more)


def replies(tokens: tuple[str, str], status: int = 200, of: str = "tokens") -> tuple[Reply, ...]:
    name = f"x-ratelimit-remaining-{of}"
    return tuple(Reply(status, {name: left} if left else {}, 12) for left in tokens)


def locked(*kinds: Locked) -> tuple[SoftDeleted, ...]:
    names = {Locked.GATEWAY: plan().names.gateway, Locked.VAULT: plan().names.key_vault}
    return tuple(SoftDeleted(kind, names[kind], "eastus2", datetime.date(2026, 12, 1)) for kind in kinds)


HOLDS, FAILS, NOT_TOLD, NOT_ASKED = Verdict
TRUSTED = {"securityType": "TrustedLaunch"}
ATTEMPT = [{"name": "HUDDLE_ATTEMPT", "value": "1"}]
CASES: list[tuple[str, dict[str, Any], Verdict, str]] = [
    ("bastion-rules", {"bastion": body(provisioningState="Succeeded")}, HOLDS, "Succeeded"),
    ("bastion-rules", {"bastion": body(provisioningState="Failed")}, FAILS, "Failed"),
    ("image-trusted-launch", {"vm": body(securityProfile=TRUSTED)}, HOLDS, "TrustedLaunch"),
    ("image-trusted-launch", {"vm": body(), "image": body()}, FAILS, "not among its features"),
    ("image-trusted-launch", {"vm": body()}, NOT_ASKED, "nobody asked"),
    ("script-size", {"commands": {"a": command()}, "sent_bytes": 190_000}, HOLDS, "190,000 bytes"),
    ("script-size", {"commands": {"a": body()}, "sent_bytes": 1}, NOT_TOLD, "not run yet: a"),
    ("parameters-are-returned", {"commands": {"huddle-apply": command(parameters=ATTEMPT)}}, HOLDS, "HUDDLE_ATTEMPT"),
    ("parameters-are-returned", {"commands": {"huddle-apply": command()}}, FAILS, "none"),
    ("changed-parameter-runs", {"trial": trial()}, HOLDS, "began 1, and 2"),
    ("changed-parameter-runs", {"trial": trial(changed="1")}, FAILS, "began 1, and 1"),
    ("equal-settings-stay", {"trial": trial()}, HOLDS, "began 1, and 1"),
    ("equal-settings-stay", {"trial": trial("", "", "")}, NOT_TOLD, "told no begin"),
    ("changed-parameter-runs", {"trial": trial("", "", "2")}, NOT_TOLD, "told no begin"),
    ("equal-settings-stay", {"trial": trial(equal="3")}, FAILS, "began 1, and 3"),
    (
        "agent-period",
        {"trial": trial(output="agent period: 6")},
        HOLDS,
        "every 6 s; a command was there and back in 7 s",
    ),
    ("agent-period", {"trial": trial(output="x\nagent period: 300\n")}, FAILS, "every 300 s"),
    ("agent-period", {"trial": trial(output="agent period: ")}, HOLDS, "no period is set"),
    ("agent-period", {"trial": trial(output="simulated")}, NOT_TOLD, "does not hold the period"),
    (
        "role-delay",
        {"commands": {"huddle-prepare": command("huddle: credentials done in 71.5 s")}},
        HOLDS,
        "after 71.5 s",
    ),
    ("role-delay", {"commands": {"huddle-prepare": command("credentials failed in 240.0 s")}}, FAILS, "240.0 s"),
    ("role-delay", {"commands": {}}, NOT_TOLD, "does not hold"),
    ("web-provider", {"providers": {"microsoft.web": "NotRegistered"}, "gateway": body()}, FAILS, "NotRegistered"),
    ("web-provider", {"providers": {"microsoft.web": "NotRegistered"}}, NOT_ASKED, "nobody asked"),
    ("web-provider", {"providers": {"microsoft.web": "Registered"}}, NOT_TOLD, "before the first `up`"),
    ("backend-key-hidden", {"backend_key": body(secret=True)}, HOLDS, "no value"),
    ("backend-key-hidden", {"backend_key": body(value="s3cret-value")}, FAILS, "the value"),
    ("premiumv2-address", {"gateway": body()}, NOT_ASKED, "not asked here: the gateway is StandardV2"),
    ("gateway-name", {"gateway": body(provisioningState="Succeeded")}, HOLDS, "huddleai-dev-abc"),
    ("gateway-name", {"gateway": body(provisioningState="Activating")}, NOT_TOLD, "Activating"),
    ("refresh-is-empty", {"drift": ()}, HOLDS, "0 resources"),
    ("refresh-is-empty", {"drift": ("watch-workbook",)}, FAILS, "watch-workbook"),
    ("tokens-are-counted", {"replies": replies(("1000", "988"))}, HOLDS, "1,000, then 988 tokens"),
    ("tokens-are-counted", {"replies": replies(("1000", "1000"))}, FAILS, "1,000, then 1,000"),
    ("tokens-are-counted", {"replies": replies(("10", "1000"))}, NOT_TOLD, "a new minute"),
    ("tokens-are-counted", {"replies": replies(("", ""))}, FAILS, "lack the header"),
    ("tokens-are-counted", {"replies": replies(("1000", "988"), status=503)}, NOT_TOLD, "503"),
    ("requests-are-counted", {"replies": replies(("60", "59"), of="requests")}, HOLDS, "60, then 59 requests remained"),
    ("requests-are-counted", {"replies": replies(("1000", "988"))}, FAILS, "lack the header x-ratelimit-remaining-req"),
    ("h100-spot", {"sizes": {SIZE: {"LowPriorityCapable": "True"}}}, HOLDS, "True"),
    ("h100-spot", {"sizes": {SIZE: {"LowPriorityCapable": "False"}}}, FAILS, "False"),
    ("h100-spot", {"sizes": {}}, NOT_TOLD, "does not say"),
    ("h100-nvme", {"sizes": {SIZE: {"NvmeDiskSizeInMiB": str(3576 * 1024)}}}, HOLDS, "3576 GiB"),
    ("h100-nvme", {"sizes": {SIZE: {"NvmeDiskSizeInMiB": "1024"}}}, FAILS, "1 GiB, assumed 3576"),
    ("names-stay-locked", {"locked": locked(*Locked)}, HOLDS, "until 2026-12-01"),
    ("names-stay-locked", {"locked": locked(Locked.VAULT)}, FAILS, "key vault"),
    ("names-stay-locked", {"locked": ()}, NOT_ASKED, "after `make destroy`"),
]


def answer(name: str, seen: Evidence, **changes: Any) -> answers.Answer:
    return next(one for one in answers.all_of(plan(**changes), seen) if one.id == name)


@pytest.mark.parametrize(("name", "seen", "verdict", "said"), CASES)
def test_what_azure_said_gives_the_answer(name: str, seen: dict[str, Any], verdict: Verdict, said: str) -> None:
    found = answer(name, dataclasses.replace(EMPTY, **seen))
    assert (found.verdict, said in found.seen) == (verdict, True), found
    assert "s3cret" not in found.seen
    table = assumptions.load()[name]
    assert found.follows == {HOLDS: table.holds, FAILS: table.fails}.get(verdict, "")


@pytest.mark.parametrize(("addresses", "verdict"), [(["10.0.1.4"], HOLDS), ([], FAILS)])
def test_premium_v2_is_asked_for_its_address(addresses: list[str], verdict: Verdict) -> None:
    seen = dataclasses.replace(EMPTY, gateway=body(privateIPAddresses=addresses))
    assert answer("premiumv2-address", seen, **PREMIUM_V2).verdict is verdict


@pytest.mark.parametrize(
    ("state", "verdict"), [("Succeeded", HOLDS), ("Failed", FAILS), ("Running", NOT_TOLD), (None, NOT_TOLD)]
)
def test_a_stack_without_gpu_says_whether_its_engine_came_up(state: str | None, verdict: Verdict) -> None:
    apply = body(instanceView={"executionState": state})
    seen = dataclasses.replace(EMPTY, commands={"huddle-apply": apply} if state else {})
    found = {one.id: one.verdict for one in answers.all_of(plan("proof"), seen)}
    assert found["cpu-engine"] is verdict
    assert answer("cpu-engine", seen).seen == "this stack has GPUs"


def test_every_assumption_that_is_asked_can_hold() -> None:
    holding = {name for name, _, verdict, _ in CASES if verdict is HOLDS} | {"premiumv2-address", "cpu-engine"}
    undecided = {"web-provider"}  # only a look before the first `up` can say that it holds
    assert holding == {name for name, one in assumptions.load().items() if not one.person} - undecided


def test_without_evidence_nothing_is_claimed() -> None:
    found = answers.all_of(plan(), EMPTY)
    assert {one.verdict for one in found} == {NOT_ASKED}
    assert [one.id for one in found] == list(assumptions.load())
    assert answers.count(found) == f"0 hold, 0 do not hold, 0 not told, {len(found)} not asked"
