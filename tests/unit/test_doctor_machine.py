"""What doctor makes of settings that this machine does not have."""

import pytest

from remoteprof.doctor import machine


@pytest.mark.parametrize(
    ("scope", "capable", "status", "words"),
    [
        ("0", False, "ok", ""),
        ("1", False, "limit", "remoteprof run"),
        ("1", True, "ok", ""),
        ("2", False, "limit", "CAP_SYS_PTRACE"),
        ("2", True, "ok", ""),
        ("3", True, "limit", "nothing at all"),
        ("nonsense", False, "ok", "no Yama"),
    ],
)
def test_ptrace_scope(tmp_path, monkeypatch, scope, capable, status, words):
    (tmp_path / "scope").write_text(f"{scope}\n")
    monkeypatch.setattr(machine, "_YAMA", tmp_path / "scope")
    monkeypatch.setattr(machine, "may_trace", lambda: capable)
    finding = machine._ptrace_scope()
    assert finding.status == status and words in finding.fact
    assert bool(finding.mend) == (status == "limit")


def test_in_a_container(monkeypatch):
    inodes = {"pid": 4026532001, "user": machine.INITIAL_USER_NAMESPACE}
    monkeypatch.setattr(machine, "namespace", lambda kind, pid="self": inodes[kind])
    monkeypatch.setattr(machine, "may_trace", lambda: False)
    assert "shareProcessNamespace" in machine._namespaces().mend
    assert "--cap-add=SYS_PTRACE" in machine._capabilities().mend
    inodes["pid"] = machine.INITIAL_PID_NAMESPACE
    assert machine._namespaces().status == "ok"
    assert machine._capabilities().mend == "run with sudo for those of others"


def test_few_descriptors(monkeypatch):
    monkeypatch.setattr(machine.resource, "getrlimit", lambda which: (256, 1024))
    assert machine._descriptors().status == "limit"
    monkeypatch.setattr(machine.resource, "getrlimit", lambda which: (256, machine.resource.RLIM_INFINITY))
    assert machine._descriptors().status == "ok"


def test_what_is_gone_has_no_fields():
    assert machine.status_of(0x7FFFFFFF) == {}
    assert machine.namespace("pid", 0x7FFFFFFF) == 0
