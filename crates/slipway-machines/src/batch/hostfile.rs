//! Host files: a machine a line, as PBS writes them (`qsub(1B)`, `PBS_NODEFILE`) and Open MPI reads them (`mpirun(1)`,
//! "slots=").

use std::path::Path;

use slipway_document::units::Bytes;

use super::{BatchError, Offer, list};

/// Most bytes of a host file.
pub const LONGEST: usize = 4 << 20;

/// The machines of a host file, in the order in which they first appear. A machine that appears twice offers the sum.
///
/// # Errors
/// At the first line that nobody can read.
pub fn offers(path: &Path, text: &str) -> Result<Vec<Offer>, BatchError> {
    let mut offers: Vec<Offer> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |reason| BatchError::Line { path: path.to_owned(), line: number, reason };
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(host) = words.next() else { continue };
        let (user, name) = host.split_once('@').map_or((None, host), |(user, name)| (Some(user), name));
        let name = list::hosts(name).ok().filter(|names| names.len() == 1 && !name.contains('['));
        let is_user = |user: &str| user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if name.is_none() || user.is_some_and(|user| user.is_empty() || user.starts_with('-') || !is_user(user)) {
            return Err(wrong("it begins with no host"));
        }
        let mut offer = Offer { host: host.to_owned(), address: None, cores: Some(1), memory: None, job: None };
        for word in words {
            let Some((key, value)) = word.split_once('=') else { return Err(wrong("write KEY=VALUE after the host")) };
            match key {
                "slots" | "cores" => {
                    let cores = value.parse().ok().filter(|cores| (1..=65535).contains(cores));
                    offer.cores = Some(cores.ok_or_else(|| wrong("write 1 to 65535 slots"))?);
                }
                "memory" => offer.memory = Some(value.parse::<Bytes>().map_err(|_| wrong("that is no memory"))?),
                "address" => offer.address = Some(value.parse().map_err(|_| wrong("that is no IPv4 address"))?),
                // Open MPI's bound on oversubscription says nothing of what there is.
                "max_slots" | "max-slots" => {}
                _ => return Err(wrong("the keys are slots, cores, memory and address")),
            }
        }
        match places.get(host) {
            Some(&at) => {
                let known: &mut Offer = &mut offers[at];
                known.cores = known.cores.zip(offer.cores).map(|(one, more)| one.saturating_add(more).min(65535));
                known.memory = known.memory.or(offer.memory);
                known.address = known.address.or(offer.address);
            }
            None if offers.len() == list::MOST => return Err(wrong("it has too many machines")),
            None => {
                places.insert(host.to_owned(), offers.len());
                offers.push(offer);
            }
        }
    }
    Ok(offers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<(String, Option<u32>)>, BatchError> {
        let offers = offers(Path::new("hosts"), text)?;
        Ok(offers.into_iter().map(|offer| (offer.host, offer.cores)).collect())
    }

    #[test]
    fn files_of_pbs_and_open_mpi_are_read() {
        let all = |pairs: &[(&str, u32)]| {
            pairs.iter().map(|(host, cores)| ((*host).to_owned(), Some(*cores))).collect::<Vec<_>>()
        };
        assert_eq!(read("n1\nn1\nn2\nn1\n").unwrap(), all(&[("n1", 3), ("n2", 1)]));
        let text = "# a cluster\nn1 slots=4 max_slots=8\n\nroot@n2.example slots=2 # the small one\n";
        assert_eq!(read(text).unwrap(), all(&[("n1", 4), ("root@n2.example", 2)]));
        let offers = offers(Path::new("f"), "n1 memory=2GiB address=192.0.2.7 slots=3").unwrap();
        assert_eq!(
            (offers[0].memory.unwrap().0, offers[0].address.unwrap().to_string()),
            (2 << 30, "192.0.2.7".into())
        );
    }

    #[test]
    fn a_wrong_line_is_named() {
        for text in
            ["n1\n-oX", "n1\nn2 slots=0", "n1\nn2 slots", "n1\nn2 colour=red", "n1\n@n2", "n1\na;b", "n1\nn[1-2]"]
        {
            assert!(matches!(read(text), Err(BatchError::Line { line: 2, .. })), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_an_answer(text in "([a-c@=#]|slots=[0-9]{0,6}| |\n){0,30}|(?s).{0,60}") {
            if let Ok(offers) = offers(Path::new("f"), &text) {
                let names: std::collections::HashSet<_> = offers.iter().map(|offer| &offer.host).collect();
                prop_assert_eq!(names.len(), offers.len());
            }
        }
    }
}
