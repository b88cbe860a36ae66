//! Bridges between hosts that span machines: this machine's end of each trunk.

use std::os::fd::AsFd as _;

use slipway_lab::model::Lab;
use slipway_sys::netlink::{Forward, NewLink, Request, SetLink, Vxlan};

use super::super::error::NetworkError;
use super::super::graph::Kind;
use super::super::members::VXLAN_OVERHEAD;
use super::super::trunk::{TUNNEL_PORT, Trunk};
use super::Sites;

impl Sites {
    /// Joins `bridge`, in the namespace between hosts, to those of the same trunk on other machines. Does nothing where its
    /// hosts are on one machine. `mtu` is the bridge's, bytes.
    pub(in crate::network) fn span(
        &mut self,
        lab: &Lab,
        trunk: Trunk,
        bridge: u32,
        mtu: u32,
    ) -> Result<(), NetworkError> {
        let entries = trunk.entries(lab);
        if entries.is_empty() {
            return Ok(());
        }
        let own = &lab.machines[lab.part.machine];
        let lower = self.machine.interface_of(own.address.into())?.ok_or_else(|| {
            let reason = format!(
                "this machine has no interface with the address {} of machine {}\n\
                 Hint: give machine {} an address that `ip address` lists there",
                own.address, own.name, own.name
            );
            NetworkError::impossible(&trunk.name(), reason)
        })?;
        if mtu + VXLAN_OVERHEAD > lower.mtu {
            let reason = format!(
                "{} of machine {} carries {} bytes, and an MTU of {mtu} takes {VXLAN_OVERHEAD} more between machines\n\
                 Hint: write `underlay: {{mtu: {}}}`, or an mtu of the network that fits",
                lower.name,
                own.name,
                lower.mtu,
                lower.mtu.saturating_sub(VXLAN_OVERHEAD),
            );
            return Err(NetworkError::impossible(&trunk.name(), reason));
        }
        self.machine.made.found(&lower.name, Some(lower.index), None, Kind::Found);
        let between = self.between()?;
        let index = between.index();
        let net = between.net().try_clone_to_owned().map_err(NetworkError::system("keep a namespace"))?;
        let link = NewLink { name: trunk.name(), index: Some(index), mtu: Some(mtu), up: true, ..NewLink::default() };
        let (vni, local) = (trunk.vni(lab), own.address.into());
        let tunnel = Vxlan { link, vni, local, port: TUNNEL_PORT, lower: lower.index, net: Some(net.as_fd()) };
        self.machine.make(trunk.network(), &[Request::AddVxlan(tunnel)])?;
        let join = Request::SetLink(SetLink { index, master: Some(bridge), ..SetLink::default() });
        let entry = |(mac, to)| Request::AddForwarding { index, mac, to: Forward::Remote(to) };
        let requests: Vec<_> = [join].into_iter().chain(entries.into_iter().map(entry)).collect();
        Ok(self.between()?.make(trunk.network(), &requests)?)
    }
}
