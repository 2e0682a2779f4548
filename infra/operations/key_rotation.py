"""Rotate a subscription's keys without an outage, in two steps; the clients change keys between them.

Clients use one of the two keys (the primary one, by default). The first step renews the *other* key,
which nobody uses; clients move to it; the second step renews the key that they left. Neither step ever touches the
key in use, so there is no moment without a key that works.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify

from huddle.errors import Fault, InputError
from plan.azure.gateway_model import GatewayPlan
from plan.vocabulary import KeyName


@verify(UNIQUE)
class Step(StrEnum):
    """The two steps of a rotation; clients move to the other key between them."""

    START = "start"
    FINISH = "finish"


@dataclass(frozen=True)
class Rotation:
    """One step of one subscription's rotation: `renews` gets a new value while clients use the other key."""

    subscription: str
    sid: str
    step: Step
    renews: KeyName
    clients_use: KeyName

    @property
    def question(self) -> str:
        """What a person must be sure of before the step."""
        return (
            f"The {self.renews} key of {self.subscription} stops working at once. "
            f"Do all of its clients use the {self.clients_use} key?"
        )

    def next_steps(self, stack: str) -> tuple[str, ...]:
        """What to do once the step is done."""
        publish = f"make up STACK={stack}   # outputs and key vault get the new key"
        if self.step is Step.START:
            return (
                publish,
                f"give the {self.renews} key to the clients of {self.subscription}, and wait until they use it",
                f"infra keys rotate -s {stack} {self.subscription} --finish"
                + (" --in-use secondary" if self.clients_use is KeyName.SECONDARY else ""),
            )
        return (
            publish,
            f"nothing else: clients stay on the {self.clients_use} key"
            + (f"; next time, add `--in-use {self.clients_use}`" if self.clients_use is KeyName.SECONDARY else ""),
        )


def plan_step(gateway: GatewayPlan, file: str, subscription: str, step: Step, in_use: KeyName) -> Rotation:
    """The step that a person asks for. `in_use` is the key that clients had when the rotation began.

    Raises:
        InputError: the stack has no such subscription.
    """
    known = {each.path: each for product in gateway.products for each in product.subscriptions}
    if subscription not in known:
        allowed = ", ".join(sorted(known)) or "none: no product of this stack has subscriptions"
        raise InputError(
            Fault(file, "gateway.products", f"there is no subscription '{subscription}'; allowed: {allowed}")
        )
    spare = other(in_use)
    starting = step is Step.START
    return Rotation(
        subscription=subscription,
        sid=known[subscription].id,
        step=step,
        renews=spare if starting else in_use,
        clients_use=in_use if starting else spare,
    )


def other(which: KeyName) -> KeyName:
    """Primary for secondary and the other way round."""
    return KeyName.SECONDARY if which is KeyName.PRIMARY else KeyName.PRIMARY
