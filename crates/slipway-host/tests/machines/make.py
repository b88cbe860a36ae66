#!/usr/bin/env python3
"""Writes the recorded machines of the tests: synthetic, but with all that facts read. `make.py` writes all four.

No machine's own values are in them: each shows settings that are usual for its kind, some good and some not."""

import json
from pathlib import Path

HERE = Path(__file__).parent

SYSCTLS = {
    "fs.aio-max-nr": "65536",
    "fs.file-max": "9223372036854775807",
    "kernel.hung_task_timeout_secs": "120",
    "kernel.nmi_watchdog": "1",
    "kernel.numa_balancing": "1",
    "kernel.sched_autogroup_enabled": "0",
    "kernel.timer_migration": "1",
    "net.core.busy_poll": "0",
    "net.core.busy_read": "0",
    "net.core.default_qdisc": "fq_codel",
    "net.core.netdev_budget": "300",
    "net.core.netdev_budget_usecs": "2000",
    "net.core.netdev_max_backlog": "1000",
    "net.core.optmem_max": "20480",
    "net.core.rmem_default": "212992",
    "net.core.rmem_max": "212992",
    "net.core.rps_sock_flow_entries": "0",
    "net.core.somaxconn": "4096",
    "net.core.wmem_default": "212992",
    "net.core.wmem_max": "212992",
    "net.ipv4.tcp_adv_win_scale": "1",
    "net.ipv4.tcp_available_congestion_control": "reno cubic",
    "net.ipv4.tcp_congestion_control": "cubic",
    "net.ipv4.tcp_fastopen": "1",
    "net.ipv4.tcp_mem": "766497\t1021999\t1532994",
    "net.ipv4.tcp_moderate_rcvbuf": "1",
    "net.ipv4.tcp_mtu_probing": "0",
    "net.ipv4.tcp_no_metrics_save": "0",
    "net.ipv4.tcp_notsent_lowat": "4294967295",
    "net.ipv4.tcp_rmem": "4096\t131072\t6291456",
    "net.ipv4.tcp_sack": "1",
    "net.ipv4.tcp_slow_start_after_idle": "1",
    "net.ipv4.tcp_timestamps": "1",
    "net.ipv4.tcp_window_scaling": "1",
    "net.ipv4.tcp_wmem": "4096\t16384\t4194304",
    "net.ipv4.udp_mem": "1532994\t2043999\t3065988",
    "net.ipv4.udp_rmem_min": "4096",
    "vm.dirty_background_bytes": "0",
    "vm.dirty_background_ratio": "10",
    "vm.dirty_bytes": "0",
    "vm.dirty_expire_centisecs": "3000",
    "vm.dirty_ratio": "20",
    "vm.dirty_writeback_centisecs": "500",
    "vm.min_free_kbytes": "67584",
    "vm.stat_interval": "1",
    "vm.swappiness": "60",
    "vm.vfs_cache_pressure": "100",
    "vm.zone_reclaim_mode": "0",
}

FEATURES = {
    "rx-checksum": True, "rx-gro": True, "rx-gro-hw": False, "rx-hashing": True, "rx-lro": False, "rx-ntuple-filter": False,
    "tx-checksum-ip-generic": True, "tx-checksum-ipv4": False, "tx-generic-segmentation": True, "tx-scatter-gather": True,
    "tx-tcp-segmentation": True, "tx-udp-segmentation": True,
}


def unknown(what):
    return {"unknown": f"its driver does not tell its {what}"}


def told(**changes):
    """Answers of ethtool about one interface."""
    answers = {
        "ring_rx": [1024, 8192], "ring_tx": [1024, 8192], "channels": [8, 63],
        "coalesce_rx_us": 8, "coalesce_tx_us": 16, "adaptive_rx": True, "adaptive_tx": True,
        "pause": {"rx": False, "tx": False}, "features": dict(FEATURES), "fixed": ["tx-checksum-ipv4"], "qdisc": "mq",
    }
    answers["features"].update(changes.pop("features", {}))
    return answers | changes


class Machine:
    def __init__(self, name, kernel, vendor, product, cmdline):
        self.name, self.files, self.told, self.mounts = name, {}, {}, []
        self.put("/proc/sys/kernel/osrelease", kernel)
        self.put("/sys/class/dmi/id/sys_vendor", vendor)
        self.put("/sys/class/dmi/id/product_name", product)
        self.put("/proc/cmdline", cmdline)

    def put(self, path, content=""):
        self.files[path] = str(content)

    def sysctls(self, **changes):
        for name, value in (SYSCTLS | {key.replace("__", "."): value for key, value in changes.items()}).items():
            if value is not None:
                self.put("/proc/sys/" + name.replace(".", "/"), value)

    def processors(self, model, sockets, per_socket, governor=None, driver=None, smt=0, turbo=None, max_khz=None, flags="",
                   preference=None, idle=()):
        root, count, lines = "/sys/devices/system/cpu", sockets * per_socket, []
        # Each thread of a core is a processor; the kernel counts first threads of all cores, then second ones.
        socket = lambda cpu: cpu % (count // (2 if smt else 1)) * (2 if smt else 1) // per_socket
        for cpu in range(count):
            lines += [f"processor\t: {cpu}", f"model name\t: {model}", f"physical id\t: {socket(cpu)}", f"flags\t\t: fpu tsc {flags}".rstrip(), ""]
            if governor:
                self.put(f"{root}/cpu{cpu}/cpufreq/scaling_governor", governor)
        self.put("/proc/cpuinfo", "\n".join(lines))
        self.put(f"{root}/online", f"0-{count - 1}")
        self.put(f"{root}/isolated")
        self.put(f"{root}/smt/active", smt)
        if driver:
            self.put(f"{root}/cpu0/cpufreq/scaling_driver", driver)
            self.put(f"{root}/cpu0/cpufreq/cpuinfo_max_freq", max_khz)
        if preference:
            self.put(f"{root}/cpu0/cpufreq/energy_performance_preference", preference)
        if turbo is not None:
            self.put(f"{root}/intel_pstate/no_turbo", int(not turbo))
        for at, (name, latency) in enumerate(idle):
            for file, value in (("name", name), ("latency", latency), ("disable", 0)):
                self.put(f"{root}/cpu0/cpuidle/state{at}/{file}", value)
        self.nodes = []
        for node in range(sockets):
            cpus = [cpu for cpu in range(count) if socket(cpu) == node]
            self.nodes.append(ranges(cpus))
            self.put(f"/sys/devices/system/node/node{node}/cpulist", self.nodes[-1])

    def memory(self, gib, huge="madvise"):
        self.put("/proc/meminfo", f"MemTotal:       {gib * 1024 * 1024 - 500000} kB\nHugePages_Total:       0\nHugepagesize:       2048 kB")
        words = [f"[{word}]" if word == huge else word for word in ("always", "madvise", "never")]
        self.put("/sys/kernel/mm/transparent_hugepage/enabled", " ".join(words))

    def nic(self, name, driver, mbit, node=None, pcie=None, mtu=1500, queues=1, txqueuelen=1000, irqs=(), irq_cpus=None, xps=True,
            lost=None, **answers):
        root = f"/sys/class/net/{name}"
        self.put(f"{root}/device/uevent", f"DRIVER={driver}")
        self.put(f"{root}/operstate", "up" if mbit else "down")
        self.put(f"{root}/speed", mbit or -1)
        self.put(f"{root}/mtu", mtu)
        self.put(f"{root}/tx_queue_len", txqueuelen)
        if mbit:
            counters = dict.fromkeys(("rx_missed_errors", "rx_fifo_errors", "rx_crc_errors", "rx_frame_errors", "tx_dropped", "tx_fifo_errors"), 0)
            for file, value in (counters | {"rx_packets": 8_000_000_000} | (lost or {})).items():
                self.put(f"{root}/statistics/{file}", value)
        if pcie:
            (speed, width), (most, widest) = pcie
            for file, value in (("current_link_speed", f"{speed} GT/s PCIe"), ("current_link_width", width),
                                ("max_link_speed", f"{most} GT/s PCIe"), ("max_link_width", widest)):
                self.put(f"{root}/device/{file}", value)
        if node is not None:
            self.put(f"{root}/device/numa_node", node)
            self.put(f"{root}/device/local_cpulist", self.nodes[max(node, 0)])
        for queue in range(queues):
            self.put(f"{root}/queues/rx-{queue}/rps_cpus", "00000000")
            self.put(f"{root}/queues/rx-{queue}/rps_flow_cnt", 0)
            self.put(f"{root}/queues/tx-{queue}/xps_cpus", f"{1 << queue % 30:08x}" if xps else "00000000")
        for at, irq in enumerate(irqs):
            self.put(f"{root}/device/msi_irqs/{irq}/")
            self.put(f"/proc/irq/{irq}/smp_affinity_list", irq_cpus(at))
        self.told[name] = told(**answers)

    def disk(self, name, sectors, dev, scheduler="[none] mq-deadline kyber bfq", readahead=128, requests=1023, rotates=0, model=None,
             mount=None, **more):
        root = f"/sys/block/{name}"
        files = {"dev": dev, "size": sectors, "queue/scheduler": scheduler, "queue/read_ahead_kb": readahead,
                 "queue/nr_requests": requests, "queue/rotational": rotates, "queue/max_sectors_kb": 1280,
                 "queue/write_cache": "write back"}
        if model:
            files["device/model"] = model
        for file, value in (files | more).items():
            self.put(f"{root}/{file}", value)
        if mount:
            at, kind, options = mount
            self.mounts.append(f"{30 + len(self.mounts)} 1 {dev} / {at} rw,relatime shared:1 - {kind} /dev/{name} {options}")

    def write(self, services="", tuned=None):
        self.put("/services", services)
        self.put("/proc/self/mountinfo", "\n".join(self.mounts))
        self.put("/ethtool.json", json.dumps(self.told, indent=1))
        if tuned:
            self.put("/etc/tuned/active_profile", tuned)
        text = f"# Written by make.py: {self.name}\n"
        for path, content in sorted(self.files.items()):
            lines = ["\\" + line if line.startswith(("=", "\\")) else line for line in content.split("\n")]
            text += f"=== {path}\n" + ("\n".join(lines) + "\n" if content else "")
        (HERE / f"{self.name}.txt").write_text(text)


def ranges(cpus):
    """`0-3,8`, as the kernel writes a set."""
    parts, first = [], cpus[0]
    for cpu, after in zip(cpus, cpus[1:] + [None]):
        if after != cpu + 1:
            parts.append(f"{first}-{cpu}" if cpu > first else str(cpu))
            first = after
    return ",".join(parts)


def dtn_100g():
    """Two sockets, tuned by hand for the network, with the interrupts of one interface on the far node."""
    machine = Machine("dtn-100g", "6.8.0-45-generic", "Dell Inc.", "PowerEdge R750",
                      "BOOT_IMAGE=/vmlinuz-6.8.0-45-generic root=/dev/md0 ro intel_iommu=on")
    machine.processors("Intel(R) Xeon(R) Gold 6346 CPU @ 3.10GHz", 2, 16, "performance", "intel_pstate", turbo=True, max_khz=3600000,
                       preference="balance_performance", idle=(("POLL", 0), ("C1", 1), ("C1E", 4), ("C6", 170)))
    machine.memory(256)
    machine.sysctls(net__core__rmem_max="2147483647", net__core__wmem_max="2147483647", net__core__default_qdisc="fq",
                    net__ipv4__tcp_rmem="4096\t131072\t1073741824", net__ipv4__tcp_wmem="4096\t16384\t1073741824",
                    net__ipv4__tcp_available_congestion_control="reno cubic bbr", net__core__optmem_max="1048576",
                    net__ipv4__tcp_no_metrics_save="1", net__ipv4__tcp_mtu_probing="1", net__core__netdev_max_backlog="250000")
    near = lambda at: str(16 + at % 16)
    machine.nic("ens1f0np0", "mlx5_core", 100000, 1, ((16.0, 16), (16.0, 16)), 9000, 16, 20000, range(200, 216), near,
                ring_rx=[1024, 8192], ring_tx=[8192, 8192], channels=[16, 63], pause={"rx": True, "tx": True},
                losses={"rx_out_of_buffer": 4_210_884, "rx_discards_phy": 92_331, "rx_crc_errors_phy": 0, "tx_discards_phy": 0})
    far = lambda at: str(at % 16)
    machine.nic("ens2f0np0", "mlx5_core", 100000, 1, ((8.0, 8), (16.0, 16)), 1500, 16, 1000, range(300, 316), far,
                ring_rx=[1024, 8192], ring_tx=[1024, 8192], channels=[16, 63], features={"rx-lro": True},
                lost={"rx_crc_errors": 70_211}, losses={"rx_out_of_buffer": 12, "rx_discards_phy": 0})
    machine.nic("eno1", "tg3", 1000, 0, ((5.0, 1), (5.0, 1)), irqs=(90,), irq_cpus=lambda at: "0-31", ring_rx=[200, 2047],
                ring_tx=[511, 511], channels=[1, 4], qdisc="fq_codel", adaptive_rx=False, adaptive_tx=False)
    machine.put("/sys/class/iommu/dmar0/")
    for at in range(4):
        machine.disk(f"nvme{at}n1", 7501476528, f"259:{at}", model="Dell Ent NVMe P5600 MU U.2 3.2TB")
    machine.disk("md0", 15000000000, "9:0", "none", 512, 128, mount=("/data", "xfs", "rw,attr2,inode64,noquota"),
                 **{"md/level": "raid0", "md/chunk_size": 524288})
    for at in range(4):
        machine.put(f"/sys/block/md0/slaves/nvme{at}n1/")
    machine.write("irqbalance")


def server_10g():
    """A server of an older kernel, as it was installed."""
    machine = Machine("server-10g", "4.18.0-553.el8_10.x86_64", "HPE", "ProLiant DL380 Gen10",
                      "BOOT_IMAGE=(hd0,gpt2)/vmlinuz-4.18.0-553.el8_10.x86_64 root=/dev/mapper/rhel-root ro crashkernel=auto")
    machine.processors("Intel(R) Xeon(R) Silver 4210 CPU @ 2.20GHz", 2, 20, "powersave", "intel_pstate", smt=1, turbo=True,
                       max_khz=3200000, preference="balance_performance", idle=(("POLL", 0), ("C1", 2), ("C1E", 10), ("C6", 133)))
    machine.memory(96, "always")
    machine.sysctls(kernel__sched_min_granularity_ns="10000000", kernel__sched_wakeup_granularity_ns="15000000",
                    kernel__sched_migration_cost_ns="500000", net__core__default_qdisc="pfifo_fast", net__core__somaxconn="128",
                    net__ipv4__tcp_available_congestion_control="reno cubic", vm__swappiness="30", vm__dirty_ratio="40")
    machine.nic("ens3f0", "ixgbe", 10000, 0, ((5.0, 8), (5.0, 8)), 1500, 20, 1000, range(120, 140), lambda at: str(at % 10),
                ring_rx=[512, 4096], ring_tx=[512, 4096], channels=[20, 63], adaptive_rx=unknown("coalescing"),
                adaptive_tx=unknown("coalescing"), features={"rx-lro": True}, lost={"rx_missed_errors": 151_002},
                losses={"rx_no_dma_resources": 151_002})
    machine.nic("ens3f1", "ixgbe", None, 0, ((5.0, 8), (5.0, 8)), queues=20)
    machine.disk("sda", 23437770752, "8:0", "[mq-deadline] kyber bfq none", 128, 128, 1, "LOGICAL VOLUME",
                 mount=("/export", "ext4", "rw,data=journal"))
    machine.disk("sdb", 937703088, "8:16", "[bfq] mq-deadline none", 4096, 128, 0, "MK000480GWXFF", mount=("/", "xfs", "rw,attr2"))
    machine.write("NetworkManager\nirqbalance\ntuned", "throughput-performance")


def laptop():
    """A laptop on a wire of 1 Gbit/s."""
    machine = Machine("laptop", "6.12.9-arch1-1", "LENOVO", "21HD0000GE", "root=/dev/nvme0n1p2 rw quiet")
    machine.processors("AMD Ryzen 7 PRO 7840U w/ Radeon 780M Graphics", 1, 16, "powersave", "amd-pstate-epp", smt=1, max_khz=5132000,
                       preference="balance_power", idle=(("POLL", 0), ("C1", 1), ("C2", 18), ("C3", 350)))
    machine.put("/sys/devices/system/cpu/cpufreq/boost", 1)
    machine.memory(32)
    machine.sysctls(net__ipv4__tcp_available_congestion_control="reno cubic bbr", net__core__optmem_max="131072")
    machine.put("/sys/class/iommu/ivhd0/")
    machine.nic("enp1s0", "r8169", 1000, -1, ((2.5, 1), (2.5, 1)), irqs=(45,), irq_cpus=lambda at: "0-15", ring_rx=[256, 256],
                ring_tx=[256, 256], channels=unknown("channels"), coalesce_rx_us=unknown("coalescing"), coalesce_tx_us=unknown("coalescing"),
                adaptive_rx=unknown("coalescing"), adaptive_tx=unknown("coalescing"), qdisc="fq_codel",
                features={"tx-tcp-segmentation": False, "rx-hashing": False}, fixed=["rx-lro", "rx-hashing", "tx-checksum-ip-generic"])
    machine.nic("wlp2s0", "ath11k_pci", None, queues=4)
    machine.disk("nvme0n1", 2000409264, "259:0", model="SAMSUNG MZVL21T0HCLR-00BL7")
    machine.put("/sys/block/nvme0n1/nvme0n1p2/dev", "259:2")
    machine.mounts.append("30 1 259:2 / / rw,noatime shared:1 - ext4 /dev/nvme0n1p2 rw")
    machine.write("NetworkManager\npower-profiles-")


def vm():
    """A small virtual machine."""
    machine = Machine("vm", "6.1.0-28-cloud-amd64", "QEMU", "Standard PC (Q35 + ICH9, 2009)",
                      "BOOT_IMAGE=/boot/vmlinuz-6.1.0-28-cloud-amd64 root=UUID=0 ro console=ttyS0")
    machine.processors("Intel Xeon Processor (Icelake)", 1, 4, flags="hypervisor")
    machine.memory(8)
    machine.sysctls(kernel__numa_balancing="0", kernel__nmi_watchdog="0")
    machine.nic("eth0", "virtio_net", None, queues=1)
    machine.put("/sys/class/net/eth0/operstate", "up")
    machine.told["eth0"] = told(ring_rx=[256, 256], ring_tx=[256, 256], channels=[1, 4], qdisc="pfifo_fast", pause=unknown("pause frames"),
                                adaptive_rx=False, adaptive_tx=False,
                                features={"rx-hashing": False, "rx-checksum": True}, fixed=["rx-hashing", "rx-lro", "rx-checksum", "tx-checksum-ipv4"])
    machine.disk("vda", 83886080, "254:0", "[mq-deadline] none", 128, 256, 1, mount=("/", "ext4", "rw,errors=remount-ro"))
    machine.write()


for make in (dtn_100g, server_10g, laptop, vm):
    make()
