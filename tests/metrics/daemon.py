#!/usr/bin/python3
"""The metrics of a gshmd against what its commands say: daemon.py BIN FAKECUDA_FOLDER."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys

from support import Gshmd, Answer, eventually, parse, read_all, skip

BIN, FAKECUDA = sys.argv[1:]
MIB = 1 << 20
GPU_ENV = {"LD_LIBRARY_PATH": FAKECUDA, "FAKECUDA_DEVICES": "1"}
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def check_against_df(gshmd):
    for device in gshmd.json("df")["devices"]:
        found = gshmd.scrape()
        name = f' device={device["device"]}'
        for metric, key in (("used", "used_bytes"), ("object", "object_bytes"), ("unlinked", "unlinked_bytes"),
                            ("evictable", "evictable_bytes"), ("evicted", "evicted_bytes")):
            assert found[f"gshm_device_{metric}_bytes{name}"] == device[key], (metric, device, found)
        assert found[f"gshm_device_evicted_objects{name}"] == device["evicted_objects"]
        assert found[f"gshm_device_failed{name}"] == device["failed"]
    for device in gshmd.json("devices")["devices"]:
        assert found[f'gshm_device_capacity_bytes device={device["name"]}'] == device["capacity_bytes"]


@test
def a_life_is_counted():
    with Gshmd(BIN) as gshmd:
        folder = gshmd.scratch + "/tier"
        gshmd.start("--device", "cuda:0:64M", "--device", "host:64M", "--tier", "host:8M", "--tier", folder + ":1G",
                    "--tier-free", "0", env=GPU_ENV)
        check_against_df(gshmd)
        begun = gshmd.scrape()
        assert begun["gshm_keeper_up"] == 1
        assert begun["gshm_device_info UUID=GPU-fa4ec000-0000-4000-8000-000000000000 device=cuda:0 "
                     + next(key for key in begun if key.startswith("gshm_device_info UUID=G")).split("cuda:0 ")[1]] == 1

        # Objects, by state and device.
        gshmd.gshm("create", "a/open", "--size", "2M", "--device", "host")
        gshmd.gshm("create", "a/sealed", "--size", "100K", "--device", "host")
        gshmd.gshm("seal", "a/sealed")
        data = gshmd.scratch + "/data"
        with open(data, "wb") as file:
            file.write(os.urandom(3 * MIB))
        for name in ("w0", "w1"):
            gshmd.gshm("put", data, name, "--device", "cuda:0", "--evictable")
        found = gshmd.scrape()
        assert found["gshm_objects device=host state=open"] == 1
        assert found["gshm_objects device=host state=sealed"] == 1
        assert found["gshm_objects device=cuda:0 state=sealed"] == 2
        check_against_df(gshmd)

        # Bytes of transfers: all of the two files, each byte once.
        moved = {key: value for key, value in found.items() if key.startswith("gshm_transfer_bytes_total device=cuda:0")}
        assert sum(moved.values()) == 6 * MIB, moved
        assert found["gshm_transfer_duration_seconds_count device=cuda:0 direction=in"] > 0
        gshmd.gshm("cat", "a/open")
        assert gshmd.value("gshm_transfer_bytes_total device=host direction=out path=staged") == 2 * MIB

        # Evictions, into both tiers.
        gshmd.gshm("demote", "w0")
        gshmd.awaits("gshm_evictions_total device=cuda:0 to=host", 1)
        gshmd.gshm("demote", "w0")
        gshmd.awaits("gshm_evictions_total device=host to=folder", 1)
        found = gshmd.scrape()
        assert found["gshm_reclaimed_bytes_total device=cuda:0 reason=evicted"] == 3 * MIB
        assert found["gshm_objects device=cuda:0 state=sealed"] == 1
        check_against_df(gshmd)
        gshmd.gshm("rm", "w1")
        gshmd.awaits("gshm_reclaimed_bytes_total device=cuda:0 reason=unlinked", 3 * MIB)

        # Leases: gshm blocks, since its output is not read, and is then stopped and killed.
        gshmd.gshm("create", "held", "--size", "4M", "--device", "host")
        holder = gshmd.begin("cat", "held")
        gshmd.awaits("gshm_leases access=read device=host", 1)
        holders = gshmd.json("holders", "held")["holders"]
        assert [(each["pid"], each["leases"]) for each in holders] == [(holder.pid, 1)], holders
        sessions = gshmd.value("gshm_sessions")
        assert sessions == 1, sessions
        gshmd.gshm("rm", "held")
        gshmd.awaits("gshm_device_unlinked_bytes device=host", 4 * MIB)
        check_against_df(gshmd)
        holder.send_signal(signal.SIGSTOP)
        gshmd.awaits("gshm_stalled_sessions state=stopped", 1)
        assert gshmd.value("gshm_stalled_bytes device=host state=stopped") == 4 * MIB
        holder.send_signal(signal.SIGCONT)
        gshmd.awaits("gshm_stalled_sessions state=stopped", 0)
        before = gshmd.value("gshm_reclaimed_bytes_total device=host reason=unlinked")
        holder.kill()
        gshmd.awaits("gshm_reclaimed_bytes_total device=host reason=unlinked", before + 4 * MIB)
        gshmd.awaits("gshm_leases access=read device=host", 0)
        gshmd.awaits("gshm_sessions", 0)

        # The end of a client, in the middle of a put, and of a ttl.
        writer = gshmd.begin("put", "-", "unfinished", "--size", "1M", "--device", "host")
        writer.stdin.write(b"x" * 1000)
        writer.stdin.flush()
        gshmd.awaits("gshm_leases access=write device=host", 1)
        writer.kill()
        gshmd.awaits("gshm_reclaimed_bytes_total device=host reason=client_died", 1 * MIB)
        gshmd.gshm("create", "short", "--size", "5M", "--device", "host", "--ttl", "1s")
        gshmd.awaits("gshm_reclaimed_bytes_total device=host reason=ttl", 5 * MIB)
        check_against_df(gshmd)

        # Requests, with their results.
        before = gshmd.scrape()
        assert gshmd.run("stat", "absent").returncode == 4
        gshmd.gshm("limit", "--directory", "a", "--bytes", "3M")
        assert gshmd.run("create", "a/more", "--size", "2M", "--device", "host").returncode == 7
        found = gshmd.scrape()
        gained = {key: found[key] - before.get(key, 0) for key in found}
        assert gained["gshm_requests_total operation=stat result=ENOENT"] == 1
        assert gained["gshm_requests_total operation=create_objects result=EDQUOT"] == 1
        assert gained["gshm_limit_refusals_total"] == 1
        assert gained["gshm_request_duration_seconds_count operation=create_objects"] == 1
        requests = sum(value for key, value in found.items() if key.startswith("gshm_requests_total"))
        durations = sum(value for key, value in found.items() if key.startswith("gshm_request_duration_seconds_count"))
        assert requests == durations, (requests, durations)


@test
def without_a_tier_nothing_is_evictable():
    with Gshmd(BIN) as gshmd:
        data = gshmd.scratch + "/data"
        with open(data, "wb") as file:
            file.write(os.urandom(3 * MIB))
        # Objects of the host do not leave for the tier that the host itself is.
        gshmd.start("--device", "cuda:0:64M", "--device", "host:64M", "--tier", "host:8M", "--tier-free", "0", env=GPU_ENV)
        for device in ("cuda:0", "host"):
            gshmd.gshm("put", data, device, "--device", device, "--evictable")
        found = gshmd.scrape()
        assert found["gshm_device_evictable_bytes device=cuda:0"] == 3 * MIB
        assert found["gshm_device_evictable_bytes device=host"] == 0
    with Gshmd(BIN) as gshmd:
        gshmd.start("--device", "host:64M")
        gshmd.run("create", "a", "--size", "2M", "--evictable")
        gshmd.gshm("stat", "a")
        assert gshmd.value("gshm_device_evictable_bytes device=host") == 0


@test
def both_formats_agree():
    with Gshmd(BIN) as gshmd:
        gshmd.start("--device", "host:64M")
        gshmd.gshm("create", "a", "--size", "2M")
        plain = gshmd.ask()
        assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        accept = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n"
        opened = gshmd.ask(accept)
        assert opened.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        assert opened.body.endswith("\n# EOF\n")

        def comparable(text):
            # What passes between two scrapes; bounds are written differently.
            samples = parse(text.replace('le="1.0"', 'le="1"'))
            return {key: value for key, value in samples.items() if not key.startswith("process_")}

        assert comparable(plain.body) == comparable(opened.body)
        try:
            from prometheus_client.openmetrics import parser
        except ImportError:
            print("  (without python3-prometheus-client the strict parser is left out)")
        else:
            families = {family.name for family in parser.text_string_to_metric_families(opened.body)}
            assert {"gshm_objects", "gshm_requests", "gshm_request_duration_seconds", "process_open_fds"} <= families
        assert gshmd.gshm("metrics", "--openmetrics").endswith("\n# EOF\n")
        assert parse(gshmd.gshm("metrics")).keys() >= comparable(plain.body).keys()
        assert gshmd.json("metrics")["format"] == "prometheus"
        promtool = shutil.which("promtool")
        if promtool is None:
            skip("needs promtool (package prometheus)")
        for text in (gshmd.gshm("metrics"), plain.body):
            done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
            assert done.returncode == 0 and not done.stderr, done.stderr


@test
def a_file_for_node_exporter():
    with Gshmd(BIN) as gshmd:
        gshmd.start("--device", "host:64M")
        path = gshmd.scratch + "/gshm.prom"
        gshmd.gshm("metrics", "--output", path)
        with open(path) as file:
            found = parse(file.read())
        assert found["gshm_keeper_up"] == 1
        assert not [key for key in found if key.startswith("process_")]
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o644
        assert [name for name in os.listdir(gshmd.scratch) if ".prom" in name] == ["gshm.prom"]
        done = gshmd.run("metrics", "--output", gshmd.scratch + "/missing/gshm.prom")
        assert done.returncode != 0 and "No such file" in done.stderr, done.stderr
        gshmd.gshm("shutdown")
        gshmd.process.wait()
        assert not os.path.exists(gshmd.dir + "/metrics.sock")
        done = gshmd.run("metrics")
        assert done.returncode == 3 and "not running" in done.stderr, done.stderr


@test
def slow_and_wrong_clients_delay_no_others():
    with Gshmd(BIN) as gshmd:
        gshmd.start("--device", "host:64M")
        slow = [gshmd.connect() for _ in range(100)]
        for connection in slow:
            connection.setblocking(False)
            try:
                connection.send(b"GET /metr")
            except OSError:
                pass  # it had to make place
        gshmd.scrape()
        for request, status in (("GET / HTTP/1.1\r\n\r\n", 404), ("POST /metrics HTTP/1.1\r\n\r\n", 405),
                                ("nothing\r\n\r\n", 400), ("GET /metrics HTTP/3\r\n\r\n", 505),
                                ("GET /metrics HTTP/1.1\r\nA: " + 20000 * "a" + "\r\n\r\n", 431)):
            assert gshmd.ask(request).status == status, request
        last = slow[-1]
        last.setblocking(True)
        last.sendall(b"ics HTTP/1.1\r\n\r\n")
        assert Answer(read_all(last)).status == 200


@test
def the_mount_is_counted():
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        return print("  (needs root and /dev/fuse)")
    with Gshmd(BIN) as gshmd:
        folder = gshmd.scratch + "/mnt"
        os.mkdir(folder)
        try:
            gshmd.start("--device", "cuda:0:64M", folder, env=GPU_ENV)
        except AssertionError as failure:
            if "mount" not in str(failure):
                raise
            return print("  (mounting is not permitted)")
        try:
            with open(folder + "/file", "wb") as file:
                file.write(b"x" * 3 * MIB)
                file.flush()
                gshmd.awaits("gshm_mount_open_files", 1)
            with open(folder + "/file", "rb") as file:
                assert len(file.read()) == 3 * MIB
            found = gshmd.scrape()
            path = "gshm_transfer_bytes_total device=cuda:0 direction={} path=mount"
            assert found[path.format("in")] == 3 * MIB, found
            assert found[path.format("out")] == 3 * MIB, found
            assert found["gshm_mount_operations_total operation=create"] == 1
            assert found["gshm_objects device=cuda:0 state=open"] == 1
            check_against_df(gshmd)
            # Above the limit of the directory.
            os.mkdir(folder + "/limited")
            gshmd.gshm("limit", "--directory", "limited", "--bytes", "1M")
            before = gshmd.value("gshm_limit_refusals_total")
            try:
                with open(folder + "/limited/file", "wb") as file:
                    file.write(b"x" * 2 * MIB)
                raise SystemExit("the limit has no effect")
            except OSError:
                pass
            assert gshmd.value("gshm_limit_refusals_total") > before
        finally:
            gshmd.gshm("umount", "--all", "--lazy")


def nobody():
    return ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def ask_as(command, gshmd):
    return subprocess.run([*command, BIN + "/gshm", "--dir", gshmd.dir, "metrics"], capture_output=True, text=True)


@test
def rights_are_those_of_the_other_socket():
    if os.geteuid() != 0 or not os.access("/usr/bin/setpriv", os.X_OK):
        return print("  (needs root and setpriv)")
    with Gshmd(BIN) as gshmd:
        if ask_as(nobody(), gshmd).returncode == 127:
            return print("  (another user cannot run the programs of this build)")
        gshmd.start("--device", "host:64M")
        assert os.stat(gshmd.dir + "/metrics.sock").st_mode == os.stat(gshmd.dir + "/gshm.sock").st_mode
        assert "gshm_keeper_up 1" in ask_as(nobody(), gshmd).stdout
    with Gshmd(BIN) as gshmd:
        os.chown(gshmd.scratch, 65534, 65534)
        gshmd.start("--device", "host:64M", by=nobody())
        assert stat.S_IMODE(os.stat(gshmd.dir + "/metrics.sock").st_mode) == 0o600
        os.chmod(gshmd.dir, 0o755)
        other = [word.replace("65534", "65533") for word in nobody()]
        done = ask_as(other, gshmd)
        assert done.returncode != 0 and not done.stdout, done.stdout
        assert "gshm_keeper_up 1" in ask_as(nobody(), gshmd).stdout


def address_in(said):
    return said.split("metrics: http://")[1].split("/metrics")[0]


@test
def an_address_survives_takeovers_and_kills():
    with Gshmd(BIN) as gshmd:
        _, said = gshmd.start("--device", "host:64M", "--metrics", "127.0.0.1:0")
        address = address_in(said)
        gshmd.gshm("create", "a", "--size", "2M")
        assert parse(gshmd.ask(address=address).body)["gshm_takeovers_total"] == 0
        # The same address, at once; each time with connections that the former gshmd has answered.
        for takeovers in (1, 2):
            former, _ = gshmd.start("--takeover", "--metrics", address)
            former.wait()
            found = parse(gshmd.ask(address=address).body)
            assert found["gshm_takeovers_total"] == takeovers
            assert found["gshm_device_object_bytes device=host"] == 2 * MIB
            assert found["gshm_recovery_duration_seconds"] > 0
        gshmd.kill()
        gshmd.start()  # with the same options
        found = parse(gshmd.ask(address=address).body)
        assert found["gshm_takeovers_total"] == 2
        assert found["gshm_device_object_bytes device=host"] == 2 * MIB
        # Another gshmd cannot have it.
        with Gshmd(BIN) as other:
            try:
                other.start("--device", "host:64M", "--metrics", address)
                raise SystemExit("two have one address")
            except AssertionError as failure:
                assert "cannot listen at " + address in str(failure), failure


@test
def other_hosts_are_refused_on_loopback():
    with Gshmd(BIN) as gshmd:
        _, said = gshmd.start("--device", "host:64M", "--metrics", "127.0.0.1:0", "--metrics", "0.0.0.0:0")
        loopback, public = (part.split("/metrics")[0] for part in said.split("metrics: http://")[1:])
        for host, status in (("enemy.example", 421), ("localhost:9402", 200), (loopback, 200), ("[::1]:9402", 200)):
            request = f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"
            answer = gshmd.ask(request, address=loopback)
            assert answer.status == status, (host, answer.status)
            assert ("gshm_build_info" in answer.body) == (status == 200), answer.body
            assert gshmd.ask(request).status == 200  # the Unix socket
            assert gshmd.ask(request, address=public.replace("0.0.0.0", "127.0.0.1")).status == 200


@test
def a_foreign_listener_keeps_no_gshmd_from_coming_back():
    with Gshmd(BIN) as gshmd:
        _, said = gshmd.start("--device", "host:64M", "--metrics", "127.0.0.1:0")
        address = address_in(said)
        host, _, port = address.rpartition(":")
        gshmd.gshm("create", "a", "--size", "2M")
        gshmd.start("--takeover", "--metrics", address)[0].wait()
        gshmd.kill()
        with socket.create_server((host, int(port))):
            _, said = gshmd.start()
            assert f"cannot listen at {address} for metrics: Address already in use" in said, said
            assert gshmd.value("gshm_device_object_bytes device=host") == 2 * MIB
            gshmd.start("--takeover")[0].wait()
            assert gshmd.value("gshm_device_object_bytes device=host") == 2 * MIB

        def at_the_address():
            try:
                return parse(gshmd.ask(address=address).body)
            except OSError:
                return None

        assert eventually(at_the_address, "the address is served")["gshm_device_object_bytes device=host"] == 2 * MIB


@test
def wrong_addresses_are_refused():
    for address in ("9402", "127.0.0.1:", "host.example:9402", "127.0.0.1:65536"):
        done = subprocess.run([BIN + "/gshmd", "--config", "none", "--metrics", address, "--check-config"],
                              capture_output=True, text=True)
        assert done.returncode == 2 and "is no address" in done.stderr, done.stderr
    done = subprocess.run([BIN + "/gshmd", "--config", "none", "--metrics", "127.0.0.1:9402", "--metrics", "localhost:9402",
                           "--check-config"], capture_output=True, text=True)
    assert done.returncode == 2 and "'127.0.0.1:9402' and 'localhost:9402' are one address" in done.stderr, done.stderr
    with Gshmd(BIN) as gshmd:
        _, said = gshmd.start("--device", "host:64M", "--metrics", "0.0.0.0:0")
        assert "for everybody who reaches that address" in said


for each in TESTS:
    print(each.__name__, flush=True)
    each()
