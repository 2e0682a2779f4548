"""A second process for the state file: writes 25 resources, one transaction each."""

import sys
from pathlib import Path

from simulator.azure.state.store import Resource, Store

if __name__ == "__main__":
    store = Store(Path(sys.argv[1]))
    for number in range(25):
        with store.transaction() as state:
            state.put(Resource(id=f"/{sys.argv[2]}/{number}", token="azure-native:a:B", properties={}))
