//! Traffic control requests as messages.

use netlink_packet_core::DefaultNla;
use netlink_packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcHandle, TcHeader, TcMessage, TcOption,
};

use super::{BpfFilter, Direction, Handle, Qdisc, ReplaceQdisc, netem, tbf};

/// `TCA_OPTIONS` (`include/uapi/linux/rtnetlink.h`).
const OPTIONS: u16 = 2;
/// The one filter that a place has: with a handle, so that another takes it.
const FILTER: TcHandle = TcHandle { major: 0, minor: 1 };
/// `ETH_P_ALL` (`include/uapi/linux/if_ether.h`).
const EVERY_PROTOCOL: u16 = 3;

/// Adds a clsact, or an ingress qdisc: they share handle and parent (`TC_H_CLSACT`, `TC_H_INGRESS`).
pub(in crate::netlink) fn add_places(index: u32, kind: &str) -> TcMessage {
    let mut message = clsact(index);
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    message
}

pub(in crate::netlink) fn delete_clsact(index: u32) -> TcMessage {
    clsact(index)
}

fn clsact(index: u32) -> TcMessage {
    message(index, TcHandle { major: u16::MAX, minor: 0 }, TcHandle::CLSACT)
}

pub(in crate::netlink) fn clsact_filter(filter: &BpfFilter<'_>) -> TcMessage {
    use std::os::fd::AsRawFd as _;
    let minor = match filter.direction {
        Direction::Egress => TcHandle::MIN_EGRESS,
        Direction::Ingress => TcHandle::MIN_INGRESS,
    };
    let mut message = message(filter.index, FILTER, TcHandle { major: u16::MAX, minor });
    message.header.info = u32::from(filter.order) << 16 | u32::from(EVERY_PROTOCOL.to_be());
    let options = [
        TcFilterBpfOption::ProgFd(filter.program.as_raw_fd().cast_unsigned()),
        TcFilterBpfOption::ProgName(filter.name.to_owned()),
        TcFilterBpfOption::Flags(TcBpfFlags::DirectAction),
    ];
    message.attributes = vec![
        TcAttribute::Kind(TcFilterBpf::KIND.to_owned()),
        TcAttribute::Options(options.into_iter().map(TcOption::Bpf).collect()),
    ];
    message
}

pub(in crate::netlink) fn replace_qdisc(replace: &ReplaceQdisc) -> TcMessage {
    let mut message = message(replace.index, TcHandle { major: replace.handle, minor: 0 }, tc_handle(replace.parent));
    let options = match &replace.qdisc {
        Qdisc::Netem(netem) => Some(netem::options(netem)),
        Qdisc::Tbf(tbf) => Some(tbf::options(tbf)),
        Qdisc::Plain(_) => None,
    };
    message.attributes = vec![TcAttribute::Kind(replace.qdisc.kind().to_owned())];
    message.attributes.extend(options.map(|options| TcAttribute::Other(DefaultNla::new(OPTIONS, options))));
    message
}

pub(in crate::netlink) fn delete_qdisc(index: u32, parent: Handle) -> TcMessage {
    message(index, TcHandle::UNSPEC, tc_handle(parent))
}

fn tc_handle(handle: Handle) -> TcHandle {
    TcHandle { major: handle.major, minor: handle.minor }
}

fn message(index: u32, handle: TcHandle, parent: TcHandle) -> TcMessage {
    let header = TcHeader { index: index.cast_signed(), handle, parent, ..TcHeader::default() };
    TcMessage::from_parts(header, Vec::new())
}
