//! Files of results, packed, adopted, read and collected; and workers that lie.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use slipway_results::Digest;
use slipway_results::objects::{
    Directory, Entry, Limits, Manifest, ObjectError, Out, PackError, Packed, Storage, gc, pack, read, unpack, verify,
};
use tempfile::TempDir;

/// A storage, a worker's folder and the folder of an attempt, in one file system.
struct Place {
    root: TempDir,
    storage: Directory,
}

impl Place {
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        let storage = Directory::open(&root.path().join("objects")).unwrap();
        fs::create_dir(root.path().join("out")).unwrap();
        fs::create_dir(root.path().join("folder")).unwrap();
        Self { root, storage }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path("folder").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Packs the attempt's folder, and adopts.
    fn store(&self) -> Packed {
        let mut out = Out::new(&self.path("out"));
        let packed = pack(&self.path("folder"), &mut out, &Limits::default()).unwrap();
        let digests: Vec<Digest> = out.objects().keys().copied().collect();
        self.storage.adopt(&self.path("out"), &digests).unwrap();
        assert_eq!(fs::read_dir(self.path("out")).unwrap().count(), 0);
        packed
    }

    /// Adopts the object of this content.
    fn add(&self, content: &[u8]) -> Digest {
        let (digest, _) = Out::new(&self.path("out")).add(content, u64::MAX).unwrap();
        self.storage.adopt(&self.path("out"), &[digest]).unwrap();
        digest
    }

    fn object(&self, digest: &Digest) -> PathBuf {
        let name = digest.to_string();
        self.path("objects").join(&name[..2]).join(format!("{name}.zst"))
    }

    /// Writes a file of the worker that claims to be this object.
    fn claim(&self, digest: &Digest, content: &[u8]) {
        let bytes = zstd::encode_all(content, 1).unwrap();
        fs::write(self.path("out").join(format!("{digest}.zst")), bytes).unwrap();
    }

    fn objects(&self) -> usize {
        let mut count = 0;
        self.storage
            .list(&mut |_| {
                count += 1;
                Ok(())
            })
            .unwrap();
        count
    }
}

#[test]
fn a_folder_comes_back_as_it_was() {
    let place = Place::new();
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    place.write("a.csv", "t,y\n1,2\n");
    place.write("sub/deep/b.bin", &large);
    place.write("copy.csv", "t,y\n1,2\n");
    place.write("empty", "");
    fs::set_permissions(place.path("folder").join("a.csv"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("/etc/passwd", place.path("folder").join("link")).unwrap();
    mknodat(CWD, place.path("folder").join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();

    let packed = place.store();
    assert_eq!((packed.files, packed.bytes), (4, large.len() as u64 + 16));
    assert_eq!(place.objects(), 4, "two files are equal, and the manifest is an object");
    let manifest = Manifest::read(&place.storage, &packed.manifest).unwrap();
    let skipped: Vec<_> = manifest.skipped.iter().map(|entry| (entry.path.as_str(), entry.why.as_str())).collect();
    assert_eq!(skipped, [("link", "it is a symbolic link"), ("pipe", "it is a FIFO")]);

    fs::create_dir(place.path("back")).unwrap();
    assert_eq!(unpack(&place.storage, &packed.manifest, &place.path("back")).unwrap(), 4);
    assert_eq!(fs::read(place.path("back/sub/deep/b.bin")).unwrap(), large);
    assert_eq!(fs::read_to_string(place.path("back/copy.csv")).unwrap(), "t,y\n1,2\n");
    assert_eq!(fs::metadata(place.path("back/a.csv")).unwrap().permissions().mode() & 0o777, 0o750);
    let again = unpack(&place.storage, &packed.manifest, &place.path("back")).unwrap_err();
    assert!(again.to_string().contains("File exists"), "{again}");

    assert_eq!(place.store(), packed, "the same folder has the same manifest");
    assert_eq!(place.objects(), 4);
}

#[test]
fn bounds_hold_while_the_folder_is_read() {
    let place = Place::new();
    (0..9).for_each(|number| place.write(&format!("{number}"), "1234567890"));
    let pack_within = |limits: Limits| pack(&place.path("folder"), &mut Out::new(&place.path("out")), &limits);
    assert!(pack_within(Limits { entries: 9, bytes: 90 }).is_ok());
    assert!(matches!(pack_within(Limits { entries: 8, bytes: 90 }), Err(PackError::Entries { most: 8, .. })));
    assert!(matches!(pack_within(Limits { entries: 9, bytes: 89 }), Err(PackError::Bytes { most: 89, .. })));
}

#[test]
fn adopting_twice_changes_nothing() {
    let place = Place::new();
    let (digest, size) = Out::new(&place.path("out")).add(b"result".as_slice(), u64::MAX).unwrap();
    assert_eq!((digest, size), (Digest::of(b"result"), 6));
    assert!(place.storage.adopt(&place.path("out"), &[digest]).unwrap() > 0);
    assert_eq!(place.storage.adopt(&place.path("out"), &[digest]).unwrap(), 0);
    assert_eq!(place.add(b"result"), digest);
    assert_eq!(verify(&place.storage, &digest).unwrap(), 6);
}

#[test]
fn a_lie_about_content_is_found_at_the_read() {
    let place = Place::new();
    let digest = Digest::of(b"truth");
    place.claim(&digest, b"a lie");
    place.storage.adopt(&place.path("out"), &[digest]).unwrap();
    assert!(matches!(verify(&place.storage, &digest), Err(ObjectError::Content { .. })));
    let mut content = Vec::new();
    let error = read(&place.storage, &digest, 99).unwrap().read_to_end(&mut content).unwrap_err();
    assert_eq!(error.to_string(), "its content is not the one that its name says");
    // The honest worker that comes later puts it right.
    fs::remove_file(place.object(&digest)).unwrap();
    place.claim(&digest, b"a longer lie than before");
    place.storage.adopt(&place.path("out"), &[digest]).unwrap();
    assert_eq!(place.add(b"truth"), digest);
    assert_eq!(verify(&place.storage, &digest).unwrap(), 5);
    // And no liar after it changes that.
    place.claim(&digest, b"another lie, of another length");
    place.storage.adopt(&place.path("out"), &[digest]).unwrap();
    assert_eq!(verify(&place.storage, &digest).unwrap(), 5);
}

#[test]
fn damaged_objects_are_refused() {
    let place = Place::new();
    let digest = place.add(&vec![7; 100_000]);
    let whole = fs::read(place.object(&digest)).unwrap();
    for bytes in [&whole[..0], &whole[..whole.len() / 2], b"no zstd at all"] {
        fs::write(place.object(&digest), bytes).unwrap();
        assert!(matches!(verify(&place.storage, &digest), Err(ObjectError::Content { .. })));
    }
    fs::remove_file(place.object(&digest)).unwrap();
    assert!(matches!(verify(&place.storage, &digest), Err(ObjectError::Gone(_))));
}

#[test]
fn only_regular_files_are_adopted() {
    let place = Place::new();
    let digest = Digest::of(b"x");
    let name = place.path("out").join(format!("{digest}.zst"));
    let refused = |why: &str| {
        let error = place.storage.adopt(&place.path("out"), &[digest]).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(place.objects(), 0);
    };
    refused("neither the worker's folder nor storage has it");
    symlink("/etc/passwd", &name).unwrap();
    refused("a symbolic link leads to it");
    fs::remove_file(&name).unwrap();
    mknodat(CWD, &name, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    refused("it is a FIFO");
    fs::remove_file(&name).unwrap();
    fs::create_dir(&name).unwrap();
    refused("it is a folder");
}

#[test]
fn paths_of_a_manifest_stay_in_the_folder() {
    let place = Place::new();
    let digest = place.add(b"bad");
    fs::create_dir(place.path("back")).unwrap();
    let unpack_one = |path: &str| {
        let entry = Entry { path: path.to_owned(), digest, size: 3, mode: 0o4777 };
        let manifest = serde_json::to_vec(&Manifest { files: vec![entry], skipped: Vec::new() }).unwrap();
        unpack(&place.storage, &place.add(&manifest), &place.path("back"))
    };
    for path in ["../x", "/tmp/x", "a/../../x", "", "..", "a/..", "."] {
        let error = unpack_one(path).unwrap_err().to_string();
        assert!(error.contains("leads out of the folder"), "{path}: {error}");
    }
    assert!(unpack_one("a\0b").is_err());
    symlink(place.root.path(), place.path("back/link")).unwrap();
    assert!(unpack_one("link/x").unwrap_err().to_string().contains("a symbolic link leads to it"));
    assert_eq!(unpack_one("a/b").unwrap(), 1);
    let mode = fs::metadata(place.path("back/a/b")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7000, 0, "no set-user-ID");
}

#[test]
fn a_size_that_lies_fills_no_disk() {
    let place = Place::new();
    let digest = place.add(&vec![0; 8 << 20]);
    let entry = Entry { path: "zeros".to_owned(), digest, size: 10, mode: 0o644 };
    let manifest = serde_json::to_vec(&Manifest { files: vec![entry], skipped: Vec::new() }).unwrap();
    fs::create_dir(place.path("back")).unwrap();
    let error = unpack(&place.storage, &place.add(&manifest), &place.path("back")).unwrap_err();
    assert!(error.to_string().contains("it is larger than it may be"), "{error}");
    assert!(fs::metadata(place.path("back/zeros")).unwrap().len() <= 10);
}

#[test]
fn a_collection_keeps_what_results_name_and_what_is_young() {
    let place = Place::new();
    place.write("kept", "kept");
    let kept = place.store();
    fs::remove_file(place.path("folder/kept")).unwrap();
    place.write("lost", "lost");
    let lost = place.store();
    let series = place.add(b"series");
    let collect = |grace, dry_run| gc(&place.storage, [kept.manifest], [series], grace, dry_run).unwrap();
    assert_eq!(collect(Duration::from_hours(1), false).objects, 0);
    assert_eq!(collect(Duration::ZERO, true).objects, 2);
    assert_eq!(place.objects(), 5);
    assert_eq!(collect(Duration::ZERO, false).objects, 2);
    assert_eq!(place.objects(), 3);
    assert!(verify(&place.storage, &kept.manifest).is_ok() && verify(&place.storage, &series).is_ok());
    let gone = gc(&place.storage, [lost.manifest], [], Duration::ZERO, false).unwrap_err();
    assert!(matches!(gone, ObjectError::Gone(digest) if digest == lost.manifest));
    assert_eq!(place.objects(), 3, "nothing is removed where a manifest cannot be read");
}

#[test]
fn a_digest_reads_back() {
    let digest = Digest::of(b"");
    assert_eq!(digest.to_string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(digest.to_string().parse(), Ok(digest));
    for text in ["", "e3", &digest.to_string().to_uppercase(), &format!("{}/", &digest.to_string()[..63])] {
        assert!(text.parse::<Digest>().is_err());
    }
    assert!(!Path::new(&digest.to_string()).is_absolute());
}
