"""From what was read to an answer for each assumption. Pure: the same evidence gives the same answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify

from cloud_init.bundle.node_facts import DEADLINES_S
from cloud_init.huddle_apply.machine.vm_agent import PERIOD_S
from components.attempts import SUCCEEDED, Parameter
from components.gpu_node import APPLY, PREPARE, command_name
from infra.operations import leaks
from infra.operations.arm_subscription import Locked
from infra.proof import assumptions
from infra.proof.evidence import Evidence, NotReadError, known, properties
from plan.azure.model import AzurePlan
from plan.azure_facts import VM_SIZES

SMALLEST_H100 = "Standard_NC40ads_H100_v5"
PREPARE_COMMAND, APPLY_COMMAND = command_name(PREPARE), command_name(APPLY)
WEB = "microsoft.web"
_CREDENTIALS = re.compile(r"\bcredentials (done|failed) in ([\d.]+) s")
_PERIOD = re.compile(r"^agent period: (\d*)$", re.MULTILINE)


@verify(UNIQUE)
class Verdict(StrEnum):
    """Whether an assumption holds. `NOT_TOLD`: Azure was asked, and what it said decides nothing."""

    HOLDS = "holds"
    FAILS = "does not hold"
    NOT_TOLD = "not told"
    NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Answer:
    """What became of an assumption: `seen` is what was read, or why nothing was; `follows` is what to do."""

    id: str
    verdict: Verdict
    seen: str
    follows: str


Judged = tuple[Verdict, str]
_NEVER_RAN: Judged = Verdict.NOT_TOLD, "Azure told no begin of the command that was put first"
Judge = Callable[[AzurePlan, Evidence], Judged]


def all_of(plan: AzurePlan, seen: Evidence) -> tuple[Answer, ...]:
    """The answer to every assumption, in the order of the table."""
    return tuple(_answer(name, one, plan, seen) for name, one in assumptions.load().items())


def count(answers: tuple[Answer, ...]) -> str:
    """`12 hold, 0 do not hold, 3 not told, 9 not asked`."""
    each = {verdict: sum(answer.verdict is verdict for answer in answers) for verdict in Verdict}
    return (
        f"{each[Verdict.HOLDS]} hold, {each[Verdict.FAILS]} do not hold, {each[Verdict.NOT_TOLD]} not told, "
        f"{each[Verdict.NOT_ASKED]} not asked"
    )


def _answer(name: str, one: assumptions.Assumption, plan: AzurePlan, seen: Evidence) -> Answer:
    if one.person:
        return Answer(name, Verdict.NOT_ASKED, one.asked, one.person)
    try:
        verdict, said = JUDGES[name](plan, seen)
    except NotReadError as error:
        verdict, said = Verdict.NOT_ASKED, str(error)
    follows = {Verdict.HOLDS: one.holds, Verdict.FAILS: one.fails}
    return Answer(name, verdict, said, follows.get(verdict, ""))


def _either(holds: bool, said: str) -> Judged:
    return (Verdict.HOLDS if holds else Verdict.FAILS), said


def _bastion(_: AzurePlan, seen: Evidence) -> Judged:
    state = properties(known(seen.bastion)).get("provisioningState")
    return _either(state == "Succeeded", f"the Bastion host is {state}")


def _trusted_launch(_: AzurePlan, seen: Evidence) -> Judged:
    """A VM that stands with it is the stronger witness; an image may be silent."""
    vm = properties(known(seen.vm))
    kind = (vm.get("securityProfile") or {}).get("securityType") or "Standard"
    if kind == "TrustedLaunch":
        return Verdict.HOLDS, f"the first VM is {vm.get('provisioningState')} with TrustedLaunch"
    features = properties(known(seen.image)).get("features") or []
    said = ", ".join(str(one.get("value")) for one in features if one.get("name") == "SecurityType")
    return _either(
        "TrustedLaunch" in said, f"the VM is {kind}; the image's SecurityType: {said or 'not among its features'}"
    )


def _script_size(_: AzurePlan, seen: Evidence) -> Judged:
    """A script that failed was taken."""
    commands, size = known(seen.commands), known(seen.sent_bytes)
    ran = [name for name, body in commands.items() if _view(body).get("startTime")]
    lacking = sorted(set(commands) - set(ran))
    if not commands or lacking:
        return Verdict.NOT_TOLD, f"not run yet: {', '.join(lacking) or 'every command'}"
    return Verdict.HOLDS, f"{len(ran)} commands ran; the largest script that was sent has {size:,} bytes"


def _parameters(_: AzurePlan, seen: Evidence) -> Judged:
    apply = known(seen.commands).get(APPLY_COMMAND)
    if apply is None:
        return Verdict.NOT_TOLD, f"the first node has no command {APPLY_COMMAND}"
    names = [str(one.get("name")) for one in properties(apply).get("parameters") or []]
    return _either(Parameter.ATTEMPT in names, f"the GET returns the parameters {', '.join(names) or 'none'}")


def _changed(_: AzurePlan, seen: Evidence) -> Judged:
    trial = known(seen.trial)
    if not trial.first.started:
        return _NEVER_RAN
    begun = f"last run began {trial.equal.started}, and {trial.changed.started} after the parameter was changed"
    return _either(trial.equal.started != trial.changed.started, begun)


def _equal(_: AzurePlan, seen: Evidence) -> Judged:
    trial = known(seen.trial)
    if not trial.first.started:
        return _NEVER_RAN
    begun = f"last run began {trial.first.started}, and {trial.equal.started} after the same was put again"
    return _either(trial.first.started == trial.equal.started, begun)


def _agent(_: AzurePlan, seen: Evidence) -> Judged:
    run = known(seen.trial).first
    way = f"a command was there and back in {run.took_s:.0f} s"
    found = _PERIOD.search(run.output)
    if found is None:
        return Verdict.NOT_TOLD, f"the command's output does not hold the period; {way}"
    if not found[1]:  # then the agent's own default counts, which is short
        return Verdict.HOLDS, f"no period is set; {way}"
    return _either(int(found[1]) <= PERIOD_S, f"the agent looks every {found[1]} s; {way}")


def _role(_: AzurePlan, seen: Evidence) -> Judged:
    prepare = known(seen.commands).get(PREPARE_COMMAND)
    found = _CREDENTIALS.search(str(_view(prepare).get("output") or "")) if prepare else None
    if found is None:
        return Verdict.NOT_TOLD, f"the end of {PREPARE_COMMAND}'s output does not hold its phase `credentials`"
    most = DEADLINES_S["credentials"]
    return _either(found[1] == "done", f"the secrets were {found[1]} after {found[2]} s, of {most} s at most")


def _cpu_engine(plan: AzurePlan, seen: Evidence) -> Judged:
    if not plan.head.hardware.on_cpu:
        raise NotReadError("this stack has GPUs")
    apply = known(seen.commands).get(APPLY_COMMAND)
    state = str(_view(apply).get("executionState") or "") if apply else ""
    if state not in (SUCCEEDED, "Failed"):
        return Verdict.NOT_TOLD, f"{APPLY_COMMAND} is {state or 'not there'}"
    return _either(state == SUCCEEDED, f"{APPLY_COMMAND} has {state.lower()}")


def _web(plan: AzurePlan, seen: Evidence) -> Judged:
    delegation = plan.gateway.delegation
    if delegation is None:
        raise NotReadError("this stack lends no subnet to Microsoft.Web")
    state = known(seen.providers).get(WEB, "unknown")
    if state != "Registered":
        known(seen.gateway)  # else the subnet has not been made yet
        return Verdict.FAILS, f"Microsoft.Web is {state}, and the gateway stands"
    return Verdict.NOT_TOLD, "Microsoft.Web is registered; whether by hand, only a look before the first `up` tells"


def _backend_key(_: AzurePlan, seen: Evidence) -> Judged:
    value = properties(known(seen.backend_key))
    return _either(not value.get("value"), f"the GET returns {'the value' if value.get('value') else 'no value'}")


def _premium_v2(plan: AzurePlan, seen: Evidence) -> Judged:
    facts = plan.gateway.facts
    if facts.classic or not plan.gateway.injected:
        raise NotReadError(f"not asked here: the gateway is {facts.tier.value}, {plan.gateway.inbound.value}")
    found = properties(known(seen.gateway)).get("privateIPAddresses") or []
    return _either(bool(found), f"privateIPAddresses: {', '.join(map(str, found)) or 'empty'}")


def _gateway_name(_: AzurePlan, seen: Evidence) -> Judged:
    gateway = known(seen.gateway)
    name, state = str(gateway.get("name")), properties(gateway).get("provisioningState")
    if "-" not in name or state != "Succeeded":
        return Verdict.NOT_TOLD, f"{name} is {state}"
    return Verdict.HOLDS, f"{name} is {state}"


def _drift(_: AzurePlan, seen: Evidence) -> Judged:
    changed = known(seen.drift)
    return _either(
        not changed, f"{len(changed)} resources would change" + (f": {', '.join(changed)}" if changed else "")
    )


def _limit(header: str, what: str) -> Judge:
    def judge(_: AzurePlan, seen: Evidence) -> Judged:
        replies = known(seen.replies)
        bad = [str(reply.status) for reply in replies if reply.status != 200]
        left = [int(reply.headers.get(header, "")) for reply in replies if reply.headers.get(header, "").isdecimal()]
        if bad or len(replies) < 2:
            return Verdict.NOT_TOLD, f"the gateway answered {', '.join(bad) or 'too seldom'}"
        if len(left) < 2:
            return Verdict.FAILS, f"the answers lack the header {header}"
        used, before = left[0] - left[1], f"{left[0]:,}, then {left[1]:,} {what} remained"
        if used < 0:
            return Verdict.NOT_TOLD, f"{before}: a new minute began between the requests; ask again"
        return _either(used > 0, f"{before}; the first answer's usage says {replies[0].tokens} tokens")

    return judge


def _spot(_: AzurePlan, seen: Evidence) -> Judged:
    capable = _capabilities(seen).get("LowPriorityCapable")
    if capable is None:
        return Verdict.NOT_TOLD, f"the region does not say of {SMALLEST_H100}"
    return _either(capable == "True", f"{SMALLEST_H100}: LowPriorityCapable {capable}")


def _nvme(_: AzurePlan, seen: Evidence) -> Judged:
    told, expected = _capabilities(seen).get("NvmeDiskSizeInMiB", ""), VM_SIZES[SMALLEST_H100].local_nvme_gib
    if not told.isdecimal():
        return Verdict.NOT_TOLD, f"the region does not say of {SMALLEST_H100}"
    return _either(int(told) // 1024 == expected, f"{SMALLEST_H100}: {int(told) // 1024} GiB, assumed {expected}")


def _capabilities(seen: Evidence) -> Mapping[str, str]:
    return known(seen.sizes).get(SMALLEST_H100, {})


def _locked(plan: AzurePlan, seen: Evidence) -> Judged:
    listed = {each.kind: each for each in known(seen.locked) if leaks.is_name_of(plan, each)}
    if not listed:
        raise NotReadError("no name of this stack is locked: ask after `make destroy`, before `infra purge`")
    names = ", ".join(f"{kind.value} {each.name} until {each.free_on}" for kind, each in sorted(listed.items()))
    expected = set(Locked) if plan.gateway.existing is None else {Locked.VAULT}
    return _either(expected <= set(listed), names)


def _view(command: Mapping[str, object]) -> Mapping[str, object]:
    view = properties(command).get("instanceView") or {}
    return view if isinstance(view, Mapping) else {}


JUDGES: Mapping[str, Judge] = {
    "bastion-rules": _bastion,
    "image-trusted-launch": _trusted_launch,
    "script-size": _script_size,
    "parameters-are-returned": _parameters,
    "changed-parameter-runs": _changed,
    "equal-settings-stay": _equal,
    "agent-period": _agent,
    "role-delay": _role,
    "web-provider": _web,
    "backend-key-hidden": _backend_key,
    "premiumv2-address": _premium_v2,
    "gateway-name": _gateway_name,
    "refresh-is-empty": _drift,
    "tokens-are-counted": _limit("x-ratelimit-remaining-tokens", "tokens"),
    "requests-are-counted": _limit("x-ratelimit-remaining-requests", "requests"),
    "h100-spot": _spot,
    "h100-nvme": _nvme,
    "names-stay-locked": _locked,
    "cpu-engine": _cpu_engine,
}
