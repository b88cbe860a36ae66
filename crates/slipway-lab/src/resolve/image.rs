//! Images: the ones that are used, and what lies beneath them.

use std::path::Path;

use slipway_document::de::Spanned;
use slipway_document::errors::Report;
use slipway_document::names;
use slipway_document::suggest;

use super::mount::path;
use super::node::Group;
use crate::file::{File, Image as Written};
use crate::model::{Image, ImageSource};

/// The image that is always there.
pub const HOST: &str = "host";

/// The images that nodes use, and each group's index among them.
pub(super) fn images(file: &File, groups: &[Group], base_dir: &Path, report: &mut Report) -> (Vec<Image>, Vec<usize>) {
    let all = declared(file, base_dir, report);
    let mut chosen = Vec::new();
    for group in groups {
        let written = group.spec.image.as_ref();
        chosen.push(written.and_then(|name| find(name, &all, report)).unwrap_or(0));
    }
    let mut used = vec![false; all.len()];
    for &image in &chosen {
        let mut next = Some(image);
        // A node's chain of bases ends at one that another's went through, and so does a cycle.
        while let Some(image) = next.filter(|image| !std::mem::replace(&mut used[*image], true)) {
            next = all[image].base;
        }
    }
    // Where each image stands once those that nobody uses are gone.
    let index = |image: usize| used[..image].iter().filter(|used| **used).count();
    let kept = all.iter().enumerate().filter(|(image, _)| used[*image]);
    let images = kept.map(|(_, image)| Image { base: image.base.map(index), ..image.clone() }).collect();
    (images, chosen.into_iter().map(index).collect())
}

fn find(name: &Spanned<String>, images: &[Image], report: &mut Report) -> Option<usize> {
    let found = images.iter().position(|image| image.name == name.value);
    if found.is_none() {
        let declared = images[1..].iter().map(|image| image.name.as_str()).filter(|name| *name != HOST);
        let known: Vec<_> = std::iter::once(HOST).chain(declared).collect();
        report.add(name.at, "there is no such image", suggest(&name.value, &known));
    }
    found
}

/// `host`, then the file's own in its order.
fn declared(file: &File, base_dir: &Path, report: &mut Report) -> Vec<Image> {
    let mut images = vec![Image { name: HOST.into(), source: ImageSource::Host, base: None }];
    for entry in &file.images.0 {
        names::check(&entry.name, report);
        if entry.name.value == HOST {
            report.add(entry.name.at, "the image `host` is always this machine's root", "choose another name");
        }
        let source = match &entry.value {
            Some(Written::Path(path)) if path.value == HOST => Some(ImageSource::Host),
            Some(Written::Path(written)) => {
                path(written, base_dir, report).map(|path| ImageSource::Path { path, reference: None })
            }
            Some(Written::Settings(settings)) => path(&settings.path, base_dir, report).map(|path| {
                let reference = settings.reference.as_ref().map(|reference| reference.value.clone());
                ImageSource::Path { path, reference }
            }),
            None if report.touches(entry.name.whole) => None,
            None => {
                report.add(entry.name.at, "an image without a path", "write a folder, an archive or an OCI layout");
                None
            }
        };
        images.push(Image { name: entry.name.value.clone(), source: source.unwrap_or(ImageSource::Host), base: None });
    }
    for (i, entry) in file.images.0.iter().enumerate() {
        let Some(Written::Settings(settings)) = &entry.value else { continue };
        let Some(base) = &settings.base else { continue };
        images[i + 1].base = find(base, &images, report);
        if has_cycle(&images, i + 1) {
            report.add(base.at, "the image lies on itself", "name an image that was there before it");
            images[i + 1].base = None;
        }
    }
    images
}

fn has_cycle(images: &[Image], from: usize) -> bool {
    std::iter::successors(images[from].base, |image| images[*image].base).take(images.len()).any(|image| image == from)
}
