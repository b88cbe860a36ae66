//! A broker by hand: `verbs-broker FOLDER ADDRESS…` gives each address a node, with its listener at `FOLDER/N.sock`.

use std::error::Error;

use slipway_verbs::broker::{Broker, Caps, NodeConfig, listen};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("a folder is missing")?;
    let mut broker = Broker::new(Caps::default(), Box::new(|_, _| Ok(())))?;
    for (id, address) in (1..).zip(arguments) {
        let listener = listen(format!("{folder}/{id}.sock").as_ref())?;
        broker.add(NodeConfig { id, addresses: vec![address.parse()?], listener })?;
    }
    Ok(broker.run()?)
}
