//! Whatever fio and iperf3 print, in nodes or on another machine, the readers give finite samples or a reason, and the counters
//! of the kernel give words.
#![cfg_attr(fuzzing, no_main)]

use std::time::Duration;

use slipway_measure::bottleneck::{Counters, Sides};
use slipway_measure::probe::{Fio, Output, Probe, Stream};

slipway_fuzz::target!(|bytes: &[u8]| {
    let fio = |write| Fio {
        file: "file".into(),
        write,
        size: 4096,
        block: 4096,
        depth: 1,
        direct: false,
        sync: false,
        most_seconds: 1,
        engine: "psync".to_owned(),
    };
    let stream = |udp| Stream { udp, congestion: (!udp).then(|| "bbr".to_owned()), ..Stream::default() };
    let probes = [Probe::Fio(fio(false)), Probe::Fio(fio(true)), Probe::Stream(stream(false)), Probe::Stream(stream(true))];
    for probe in probes {
        let output = Output { stdout: bytes.to_vec(), stderr: bytes.to_vec(), code: 0, wall: Duration::from_secs(1) };
        if let Ok(samples) = probe.read(&[output]) {
            assert!(samples.iter().all(|sample| sample.value.is_finite()));
        }
    }
    if let Ok(counters) = serde_json::from_slice::<Counters>(bytes) {
        assert!(!counters.bottleneck(Some(0.5), &Sides::default()).words.is_empty());
    }
});
