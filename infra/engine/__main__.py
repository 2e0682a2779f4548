"""`python -m infra.engine [show|env|run …]`: look at the engine, print its environment, run pulumi in it."""

import argparse
import json
import os
import shlex
import sys

from infra.engine import EngineUnavailableError, locate


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0; 3 when there is no engine; `run` becomes pulumi itself."""
    parser = argparse.ArgumentParser(prog="python -m infra.engine", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("show", help="print what was found, as JSON")
    actions.add_parser("env", help="print export lines for a shell")
    run = actions.add_parser("run", help="run pulumi with the right environment: run -- preview -s dev")
    run.add_argument("rest", nargs=argparse.REMAINDER, help="arguments for pulumi")
    options = parser.parse_args(arguments)
    try:
        engine = locate()
    except EngineUnavailableError as error:
        print(error, file=sys.stderr)
        return 3
    if options.action == "show":
        print(json.dumps({name: value and str(value) for name, value in vars(engine).items()}, indent=2))
    elif options.action == "env":
        changed = {key: value for key, value in engine.environment().items() if os.environ.get(key) != value}
        print("\n".join(f"export {key}={shlex.quote(value)}" for key, value in sorted(changed.items())))
    else:
        rest = options.rest[1:] if options.rest[:1] == ["--"] else options.rest
        os.execve(engine.pulumi, ["pulumi", *rest], engine.environment())
    return 0


if __name__ == "__main__":
    sys.exit(main())
