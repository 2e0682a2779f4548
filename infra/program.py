"""From a stack's values to its plan, and from the plan to resources: what `pulumi up` runs."""

from __future__ import annotations

from pathlib import Path

from gateway_policies.load_fragments import with_fragments
from huddle import registry
from huddle.errors import InputError
from plan import engines as fit
from plan import stack_file
from plan.build_azure import Plan, build
from plan.settings.azure import Settings
from plan.vocabulary import Target


def load_plan(stack: str, root: Path = stack_file.ROOT) -> Plan:
    """The plan of a stack, from its file.

    Raises:
        InputError: the stack file is wrong.
    """
    return plan_of(stack_file.load(stack, root), stack, root)


def plan_of(settings: Settings, stack: str, root: Path = stack_file.ROOT) -> Plan:
    """The plan that settings make; `root` is the project's directory, which files in settings are relative to.

    Raises:
        InputError: a rule that spans fields is broken, a model does not fit its nodes, or a policy fragment is refused.
    """
    models, file = registry.load(), f"stacks/Pulumi.{stack}.yaml"
    catalogue = {served.name: served.model.name for served in models.served}
    plan = build(settings, project=stack_file.PROJECT, stack=stack, catalogue=catalogue, file=file)
    return with_fragments(fit.with_engines(plan, models, file), settings.gateway.policy_fragments, root, file)


def main() -> None:
    """Register the stack's resources with the Pulumi engine that runs this program.

    Raises:
        pulumi.RunError: the stack's configuration is wrong; nothing has been registered.
    """
    import pulumi  # noqa: PLC0415 - the command line reads plans without Pulumi
    from pulumi.runtime.config import CONFIG, is_config_secret  # noqa: PLC0415

    stack, config = pulumi.get_stack(), CONFIG.get()
    try:
        stack_file.refuse_plain_secrets(filter(is_config_secret, config), config, stack)
        plan = plan_of(stack_file.from_pulumi(config, stack), stack)
    except InputError as error:
        raise pulumi.RunError(str(error)) from None
    register(plan)


def register(plan: Plan) -> None:
    """Hand a plan to its target."""
    match plan.target:
        case Target.AZURE:
            from infra.targets.azure import deploy as azure  # noqa: PLC0415 - importing azure-native costs a second

            azure.deploy(plan)
        case _:  # `rules.check` refuses the others until they are built
            raise AssertionError(plan.target)
