//! The kernel, and what it runs on.

use serde::Serialize;

use super::fact::Fact;
use super::source::Source;
use crate::kernel::Version;

/// The kernel, and what it runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct System {
    /// The release, such as `6.1.0-18-amd64`.
    pub kernel: Fact<String>,
    /// The release as numbers.
    pub version: Fact<Version>,
    /// The command line that the kernel started with.
    pub cmdline: Fact<String>,
    /// The maker of the machine, such as `Dell Inc.`.
    pub vendor: Fact<String>,
    /// The model of the machine.
    pub product: Fact<String>,
    /// Whether this is a virtual machine.
    pub is_virtual: Fact<bool>,
    /// Whether this is within a container.
    pub is_container: bool,
    /// Whether an IOMMU translates addresses of devices.
    pub iommu: bool,
    /// Services that run and set things too: irqbalance, tuned and others.
    pub services: Fact<Vec<String>>,
    /// The active profile of tuned.
    pub tuned_profile: Fact<String>,
}

impl System {
    /// Whether the kernel's command line has this word.
    #[must_use]
    pub fn booted_with(&self, word: &str) -> Fact<bool> {
        self.cmdline.clone().map(|line| line.split_whitespace().any(|found| found == word))
    }
}

pub(super) fn gather(source: &Source) -> System {
    let kernel = source.read("/proc/sys/kernel/osrelease");
    let marks = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];
    System {
        version: kernel.clone().parse(),
        kernel,
        cmdline: source.read("/proc/cmdline"),
        vendor: source.read("/sys/class/dmi/id/sys_vendor"),
        product: source.read("/sys/class/dmi/id/product_name"),
        is_virtual: is_virtual(source),
        // Each is read, so that a recording has all of them.
        is_container: marks.iter().filter(|mark| source.read(mark).known().is_some()).count() > 0,
        iommu: !source.list("/sys/class/iommu", |_| true).is_empty(),
        services: source.services(),
        tuned_profile: source.read("/etc/tuned/active_profile"),
    }
}

/// x86 processors say so themselves; elsewhere the firmware's tables name the hypervisor.
fn is_virtual(source: &Source) -> Fact<bool> {
    const MAKERS: [&str; 7] = ["QEMU", "VMware", "Xen", "Amazon EC2", "Google", "innotek", "Bochs"];
    let told = source.read("/proc/cpuinfo").map(|text| {
        let flags = text.lines().find(|line| line.starts_with("flags"));
        flags.map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
    });
    let vendor = source.read("/sys/class/dmi/id/sys_vendor");
    match told {
        Fact::Known(Some(is_virtual)) => Fact::Known(is_virtual),
        Fact::Known(None) => vendor.map(|vendor| MAKERS.iter().any(|maker| vendor.starts_with(maker))),
        Fact::Unknown { unknown } => Fact::Unknown { unknown },
    }
}
