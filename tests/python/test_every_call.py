"""The daemon is killed under every call, and away for every call."""
import signal
import threading

import pytest
from calls import BYTES, CASES, OTHERS, SAME, TORCH_CASES, environment, make_kept

import gshm


def under_a_kill(gshmd, call):
    """The result of a call that a daemon cannot answer, since it is stopped and then killed; or its exception."""
    begun = threading.Event()
    results = []

    def run():
        begun.set()
        try:
            results.append(call())
        except BaseException as error:
            results.append(error)

    gshmd.process.send_signal(signal.SIGSTOP)
    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    gshmd.kill()
    gshmd.start()
    thread.join()
    return results[0]


# What may be said of a call that was in progress: it may have taken effect (twice, if it was sent again), or its session was lost.
IN_DOUBT = (gshm.ConnectionLost, gshm.Stale)


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_daemon_is_killed_under(name, client, gshmd, device, tmp_path):
    make_kept(client, device)
    first = environment(client, device, tmp_path, 1)
    result = under_a_kill(gshmd, CASES[name](first))
    if isinstance(result, BaseException) and not isinstance(result, IN_DOUBT):
        raise result
    assert first.seen.tobytes() == BYTES
    CASES[name](environment(client, device, tmp_path, 2))()  # the next one succeeds
    first.made.close()
    assert client.open("kept").tobytes() == BYTES


@pytest.mark.parametrize("name", sorted(TORCH_CASES))
def test_a_daemon_is_killed_under_a_call_of_torch(name, client, gshmd, device, place, tmp_path):
    import gshm.torch

    make_kept(client, device)
    first, second = (environment(client, device, tmp_path, number) for number in (1, 2))
    first.place = second.place = place
    result = under_a_kill(gshmd, TORCH_CASES[name](first))
    if isinstance(result, BaseException) and not isinstance(result, IN_DOUBT):
        raise result
    TORCH_CASES[name](second)()
    unfinished = {one for one, info in client.list(recursive=True) if info.state == "open"}
    assert unfinished == {f"{what}{number}" for what in ("made", "there") for number in (1, 2)}, "those of the environments"


# Calls that ask nothing: the memory is mapped.
LOCAL = {"Object.read", "Object.copy", "Object.export_fd", "Object.mirror", "Object.write"}


def test_calls_without_a_daemon_fail_in_time(gshmd, device, tmp_path):
    with gshm.connect(gshmd.dir, timeout=0) as client:
        make_kept(client, device)
        environments = [environment(client, device, tmp_path, number) for number in range(len(CASES))]
        calls = {name: CASES[name](one) for name, one in zip(CASES, environments) if name != "connect"}
        gshmd.kill()
        for name, call in calls.items():
            try:
                call()
            except (ConnectionError, gshm.Timeout) as error:
                assert isinstance(error, gshm.Error) and error.strerror, name
                continue
            assert name in LOCAL, f"{name} succeeds without a daemon"
        with pytest.raises(gshm.NotRunning):
            gshm.connect(gshmd.dir, timeout=0)
        gshmd.start()
        client.ping()
        assert client.open("kept").tobytes() == BYTES


def test_every_call_has_a_case():
    public = {name for name in dir(gshm.Client) if not name.startswith("_")}
    assert public - OTHERS - SAME - set(CASES) == set(), "a new call needs a case in calls.py"
