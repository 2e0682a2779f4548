"""From a stack's values to its plan, and from the plan to resources: what `pulumi up` runs."""

from __future__ import annotations

from pathlib import Path

from huddle import registry
from huddle.errors import Fault, HuddleError, InputError, together
from infra import targets
from plan import carried_files, licences, prompt_room, stack_file
from plan.azure.model import AzurePlan
from plan.engines import with_engines
from plan.model import FleetPlan
from plan.secrets import Secret
from plan.settings.service import ServiceSettings
from plan.targets import TARGETS


def load_plan(stack: str, root: Path = stack_file.ROOT, *, rehearsed: bool = False) -> FleetPlan:
    """The plan of a stack, from its file, of its target's own class: the gate of every command that reads a stack.

    All that `deploy` makes by itself is made here as well (0.3 s), so that no command calls a stack fine which
    another one refuses.

    Raises:
        InputError: the stack file is wrong, or what it asks for can't be made.
    """
    plan = plan_of(stack_file.load(stack, root, rehearsed=rehearsed), stack, root)
    targets.of(plan.target).check(plan)
    return plan


def load_azure_plan(stack: str, root: Path = stack_file.ROOT, *, rehearsed: bool = False) -> AzurePlan:
    """The plan of a stack on Azure, for commands that are about Azure.

    Raises:
        InputError: what `load_plan` raises, or the stack's target is another one.
    """
    plan = load_plan(stack, root, rehearsed=rehearsed)
    if not isinstance(plan, AzurePlan):
        file = stack_file.label(stack, root)
        raise InputError(Fault(file, "target", f"is {plan.target}; this command is for azure only"))
    return plan


def plan_of(settings: ServiceSettings, stack: str, root: Path = stack_file.ROOT) -> FleetPlan:
    """The plan that settings make; `root` is the project's directory, which files in settings are relative to.

    Raises:
        InputError: a rule that spans fields is broken, a model does not fit its nodes, or a file that it names
            is missing or refused. All faults are told at once.
    """
    models, file = registry.load(), stack_file.label(stack, root)
    bases = {served.name: served.model.name for served in models.served}
    target, planning = targets.of(settings.target), TARGETS[settings.target]

    def planned() -> FleetPlan:
        plan = planning.build(settings, project=stack_file.PROJECT, stack=stack, bases=bases, file=file)
        return with_engines(plan, models, file, planning.sizes)

    carried = [*carried_files.checks(settings.serving, models), *prompt_room.checks(settings, models, file)]
    plan, read, *_ = together([planned, lambda: target.read_files(settings, root, file), *carried])
    complete: FleetPlan = target.complete(plan, read)
    return complete


def warnings(stack: str, root: Path = stack_file.ROOT, *, rehearsed: bool = False) -> list[str]:
    """What a stack file may say, and probably does not mean: sentences that begin with the setting.

    Rules need not hold, so that they are told together with what breaks one.

    Raises:
        InputError: the settings can't be read, or a file that a prompt needs is missing.
    """
    settings = stack_file.load(stack, root, rehearsed=rehearsed)
    models, token = registry.load(), Secret.MODEL_HUB_TOKEN.key
    found = [*targets.of(settings.target).warnings(settings), *prompt_room.warnings(settings, models)]
    if f"{stack_file.PROJECT}:{token}" not in stack_file.read(stack, root):
        found += licences.warnings(settings, models, stack_file.setting_secret(token, stack))
    return found


def main() -> None:
    """Register the stack's resources with the Pulumi engine that runs this program.

    Raises:
        pulumi.RunError: `infra validate` refuses the stack; nothing has been registered.
    """
    import pulumi  # noqa: PLC0415 - the command line reads plans without Pulumi
    from pulumi.runtime.config import CONFIG, is_config_secret  # noqa: PLC0415

    stack, config = pulumi.get_stack(), CONFIG.get()
    try:
        stack_file.refuse_plain_secrets(filter(is_config_secret, config), config, stack)
        settings = stack_file.from_pulumi(config, stack)
        stack_file.refuse_lacking_secrets(settings, config, stack)
        register(plan_of(settings, stack))
    except HuddleError as error:
        raise pulumi.RunError(str(error)) from None


def register(plan: FleetPlan) -> None:
    """Hand a plan to its target."""
    targets.of(plan.target).deploy(plan)
