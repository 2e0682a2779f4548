from tests.simulator import builders as b
def test_smoke(azure):
    n=b.node(azure)
    print(n.outputs)
    d=b.disk(azure)
    r=azure.create("compute:VirtualMachineRunCommandByVirtualMachine","apply",b.run_command_inputs())
    print(r.outputs)
    g=b.gateway(azure)
    print(g.outputs)
    v=b.vault(azure); s=b.secret(azure)
    print(s.outputs)
    assert azure.refresh(n).inputs==n.inputs
    assert "CANARY" not in azure.cloud.store.path.read_text()
