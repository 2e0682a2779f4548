"""What a person reads when a node does not come up: from the handler's JSON, however deeply it is quoted."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from infra.operations import run_command_report
from infra.operations.failures import LOG_TAIL, Failure, explain
from tests.unit.builders import plan

SENTENCE = 'readiness: not ready after 600 s: "hl" answers <500> & \\ no ünïcode 🙂'
AZURE_SAYS = (
    "VM has reported a failure when processing extension 'huddle-apply' (publisher 'Microsoft.CPlat.Core' and type "
    "'RunCommandHandlerLinux'). Error message: '{}'. More information on troubleshooting is available at "
    "https://aka.ms/vmextensionlinuxtroubleshoot. "
)


def report(error: str, output: str = "huddle-apply: day-0 ok in 3.0 s\n", code: int = 1, state: str = "Failed") -> str:
    """The handler's report, as Go writes it."""
    view = {
        "executionState": state,
        "executionMessage": f"Execution failed: command terminated with exit status={code}",
        "output": output,
        "error": error,
        "exitCode": code,
        "startTime": "2026-11-29T10:00:00Z",
        "endTime": "2026-11-29T10:20:00Z",
    }
    go = json.dumps(view, separators=(",", ":"), ensure_ascii=False)
    return go.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def provider(message: str) -> str:
    return f'Status=200 Code="VMExtensionProvisioningError" Message="{message}"'


def rest_answer(message: str) -> str:
    return json.dumps({"status": "Failed", "error": {"code": "VMExtensionProvisioningError", "message": message}})


QUOTED: dict[str, Callable[[str], str]] = {
    "by azure-native": provider,
    "as ARM's answer": rest_answer,
    "as ARM's answer in an event log": lambda message: json.dumps(rest_answer(message)),
    "with the characters that .NET escapes": lambda m: rest_answer(m).replace('\\"', "\\u0022").replace("'", "\\u0027"),
    "over several lines of a terminal": lambda message: provider(message).replace(", ", ",\n    "),
}
quoted = pytest.mark.parametrize("quote", QUOTED.values(), ids=QUOTED.keys())


def explained(text: str) -> Failure:
    failure = explain(text, plan())
    assert failure is not None, text
    return failure


@quoted
def test_the_sentence_of_the_node_is_shown_as_it_said_it(quote: Callable[[str], str]) -> None:
    failure = explained(quote(AZURE_SAYS.format(report(f"Traceback\n{SENTENCE}\n"))))
    assert failure.what == f"The node came up but does not serve; its log ends: Traceback {SENTENCE}"
    assert "run `up` again" in failure.next_step


@quoted
def test_without_stderr_the_output_is_shown(quote: Callable[[str], str]) -> None:
    failure = explained(quote(AZURE_SAYS.format(report("\n", output="cloud-init: status: error\n"))))
    assert failure.what.endswith("its log ends: cloud-init: status: error")


def test_a_killed_command_names_the_log_on_the_node() -> None:
    failure = explained(provider(AZURE_SAYS.format(report("", output="huddle-apply: staging", code=-1))))
    assert "in the time that Azure gives a command; its log ends: huddle-apply: staging" in failure.what
    assert "/var/lib/huddle/status.json" in failure.next_step


def test_a_failure_in_another_form_names_the_log_on_the_node() -> None:
    """No public report shows a run command's failure, so its form is not sure
    (docs/facts/azure.md#a-run-commands-failure).
    """
    found = explain(provider(AZURE_SAYS.format("Enable failed: exit status=1")), plan())
    assert found is not None
    assert found.what == "The node came up but does not serve, and Azure shows no log of that."
    assert "/var/lib/huddle/status.json" in found.next_step


def test_azures_own_timeout_names_the_log_on_the_node() -> None:
    """Text of custom-script-extension-linux#172."""
    failure = explained(
        'Code="VMExtensionProvisioningTimeout" Message="Provisioning of VM extension huddle-apply has timed out. '
        'Extension provisioning has taken too long to complete. The extension last reported \\"Plugin enabled\\"."'
    )
    assert "Azure shows no log" in failure.what
    assert "az vm run-command invoke -g" in failure.next_step and "-n huddleai-h100-node-1" in failure.next_step
    assert "/var/lib/waagent/run-command-handler/download/huddle-{prepare,apply}/" in failure.next_step


def test_a_script_that_went_well_is_no_failure() -> None:
    assert run_command_report.find(provider(AZURE_SAYS.format(report("", state="Succeeded")))) is None


LOGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(log=LOGS, output=LOGS, quote=st.sampled_from(list(QUOTED.values())[:3]))
@example(log='\\"}\\\\n{"executionState":"Failed"', output="", quote=provider)
@example(log="\\u0022 \\ud83d", output="", quote=rest_answer)
def test_whatever_a_log_holds_it_comes_back(log: str, output: str, quote: Callable[[str], str]) -> None:
    found = run_command_report.find(quote(AZURE_SAYS.format(report(log, output))))
    assert found is not None
    assert (found.exit_code, found.output, found.error) == (1, output, log)


@settings(max_examples=400)
@example(log="\x1f" * 5, quote=rest_answer, cut=441)
@given(log=LOGS, quote=st.sampled_from(list(QUOTED.values())[:3]), cut=st.integers(min_value=0, max_value=2_000))
def test_a_message_that_azure_cuts_off_tells_what_is_left(log: str, quote: Callable[[str], str], cut: int) -> None:
    """Cut anywhere, the error is the beginning of what the node said; the cut may go through its last character."""
    text = quote(AZURE_SAYS.format(report(log)))[:cut]
    found = run_command_report.find(text)
    if found is not None:
        assert log.startswith((found.error, found.error[:-1]))
    if (failure := explain(text, plan())) is not None:
        failure.what.encode()
        assert len(failure.what) < LOG_TAIL + 100


@pytest.mark.parametrize(
    "said", ["HTTP 403 QuotaExceeded", "AllocationFailed: cuda", "vault kv: the secret is deleted but recoverable"]
)
def test_a_nodes_log_is_never_taken_for_azures_own_words(said: str) -> None:
    failure = explain(provider(AZURE_SAYS.format(report(said))), plan("dev"))
    assert failure is not None
    assert failure.what == f"The node came up but does not serve; its log ends: {said}"
