#!/usr/bin/python3
"""A real Prometheus scrapes gshmd, and each of the shipped rules fires: prometheus.py BIN FAKECUDA_FOLDER RULES."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

from support import Gshmd, eventually, skip

BIN, FAKECUDA, RULES = sys.argv[1:]
PROMETHEUS = shutil.which("prometheus")
if PROMETHEUS is None:
    skip("needs prometheus")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Prometheus:
    def __init__(self, folder, target):
        self.folder = folder + "/prometheus"
        os.mkdir(self.folder)
        with open(RULES) as rules:
            # The rules as they are, but without their waiting times.
            text = re.sub(r"(?m)^( *for:) .*$", r"\1 0s", rules.read())
        with open(self.folder + "/rules.yml", "w") as file:
            file.write(text)
        with open(self.folder + "/prometheus.yml", "w") as file:
            file.write("global: {scrape_interval: 100ms, scrape_timeout: 100ms, evaluation_interval: 100ms}\n"
                       "rule_files: [rules.yml]\n"
                       f"scrape_configs: [{{job_name: gshm, static_configs: [{{targets: ['{target}']}}]}}]\n")
        while True:  # until the port is still free when Prometheus takes it
            self.address = f"127.0.0.1:{free_port()}"
            with open(self.folder + "/log", "wb") as log:
                self.process = subprocess.Popen(
                    [PROMETHEUS, f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data",
                     f"--web.listen-address={self.address}", "--log.level=warn"], stdout=log, stderr=log)
            eventually(lambda: self.process.poll() is not None or self.ask("/-/ready"), "Prometheus is ready")
            if self.process.poll() is None:
                return
            with open(self.folder + "/log") as log:
                said = log.read()
            assert "address already in use" in said, said

    def end(self):
        self.process.kill()
        self.process.wait()

    def ask(self, path):
        with contextlib.suppress(OSError, urllib.error.URLError):
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=60) as answer:
                return answer.read().decode()
        return None

    def query(self, expression):
        """Values by device, or ""."""
        answer = self.ask("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        if answer is None:
            return {}
        return {each["metric"].get("device", ""): float(each["value"][1]) for each in json.loads(answer)["data"]["result"]}

    def firing(self, alert):
        answer = self.ask("/api/v1/alerts")
        if answer is None:
            return []
        return [each["labels"] for each in json.loads(answer)["data"]["alerts"]
                if each["state"] == "firing" and each["labels"]["alertname"] == alert]

    def awaits(self, alert):
        return eventually(lambda: self.firing(alert), f"{alert} fires")


def run(gshmd):
    # Programs of its own: gshm-keeper goes away.
    programs = gshmd.scratch + "/bin"
    os.mkdir(programs)
    for name in ("gshmd", "gshm-keeper", "gshm-maker"):
        shutil.copy(f"{BIN}/{name}", programs)
    control = gshmd.scratch + "/control"
    options = ["--device", "cuda:0:32M", "--device", "cuda:1:32M", "--device", "host:64M"]
    env = {"LD_LIBRARY_PATH": FAKECUDA, "FAKECUDA_DEVICES": "2", "FAKECUDA_CONTROL": control}
    _, said = gshmd.start(*options, "--metrics", "127.0.0.1:0", program=programs + "/gshmd", env=env)
    address = said.split("metrics: http://")[1].split("/metrics")[0]
    prometheus = Prometheus(gshmd.scratch, address)
    try:
        # What Prometheus has read is what gshmd says.
        eventually(lambda: prometheus.query('up{job="gshm"}') == {"": 1}, "gshmd is up")
        eventually(lambda: prometheus.query("gshm_device_capacity_bytes") ==
                   {"cuda:0": 32 << 20, "cuda:1": 32 << 20, "host": 64 << 20}, "capacities")
        rules = json.loads(prometheus.ask("/api/v1/rules"))["data"]["groups"][0]["rules"]
        alerts = [rule["name"] for rule in rules]
        eventually(lambda: all(rule["health"] == "ok" for rule in json.loads(
            prometheus.ask("/api/v1/rules"))["data"]["groups"][0]["rules"]), "all rules are evaluated")
        # GshmDown has no waiting time here, so that one scrape that a busy machine has delayed fires it.
        assert {alert["labels"]["alertname"] for alert in json.loads(
            prometheus.ask("/api/v1/alerts"))["data"]["alerts"]} <= {"GshmDown"}

        gshmd.gshm("create", "full", "--size", "32M", "--device", "cuda:0")
        assert prometheus.awaits("GshmDeviceNearlyFull")[0]["device"] == "cuda:0"
        alerts.remove("GshmDeviceNearlyFull")

        gshmd.gshm("mkdir", "limited")
        gshmd.gshm("limit", "--directory", "limited", "--bytes", "1M")
        eventually(lambda: prometheus.query("gshm_limit_refusals_total") == {"": 0}, "no refusals yet")
        assert gshmd.run("create", "limited/a", "--size", "2M", "--device", "host").returncode == 7
        prometheus.awaits("GshmLimitReached")
        alerts.remove("GshmLimitReached")

        gshmd.gshm("create", "held", "--size", "4M", "--device", "host")
        holder = gshmd.begin("cat", "held")
        gshmd.awaits("gshm_leases access=read device=host", 1)
        assert not prometheus.firing("GshmMemoryPinnedByTheStopped")
        holder.send_signal(signal.SIGSTOP)
        assert prometheus.awaits("GshmMemoryPinnedByTheStopped")[0]["device"] == "host"
        holder.send_signal(signal.SIGCONT)
        eventually(lambda: not prometheus.firing("GshmMemoryPinnedByTheStopped"), "nothing is stopped any more")
        alerts.remove("GshmMemoryPinnedByTheStopped")

        # The driver has lost the GPU.
        with open(control + ".new", "w") as file:
            file.write("cuMemCreate@1:*:999")
        os.rename(control + ".new", control)
        assert gshmd.run("create", "lost", "--size", "4M", "--device", "cuda:1").returncode != 0
        assert prometheus.awaits("GshmDeviceFailed")[0]["device"] == "cuda:1"
        alerts.remove("GshmDeviceFailed")
        os.remove(control)

        keeper = gshmd.json("ping")["keeper_pid"]
        os.remove(programs + "/gshm-keeper")
        os.kill(keeper, signal.SIGKILL)
        prometheus.awaits("GshmKeeperGone")
        alerts.remove("GshmKeeperGone")
        shutil.copy(f"{BIN}/gshm-keeper", programs)
        eventually(lambda: not prometheus.firing("GshmKeeperGone"), "there is a keeper again")

        for starts in range(1, 5):
            assert not prometheus.firing("GshmRestartLoop")
            gshmd.kill()
            gshmd.start("--metrics", address, program=programs + "/gshmd", env=env)
            eventually(lambda: prometheus.query("changes(gshm_start_time_seconds[15m])").get("", 0) == starts,
                       "the start is scraped")
        prometheus.awaits("GshmRestartLoop")
        alerts.remove("GshmRestartLoop")
        assert gshmd.value("gshm_starts_total") == 5
        gshmd.kill()
        prometheus.awaits("GshmDown")
        alerts.remove("GshmDown")
        # No process here can be dead for long, and there is no node_exporter: tested with promtool, and the gauge by unit
        # tests.
        assert alerts == ["GshmMemoryPinnedByTheDead", "GshmFileIsOld"], alerts
    finally:
        prometheus.end()


with Gshmd(BIN) as started:
    run(started)
