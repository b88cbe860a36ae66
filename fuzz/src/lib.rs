//! A target is two programs: libFuzzer's, where cargo-fuzz builds it (`cfg(fuzzing)`); else one that takes folders of inputs
//! and gives it each once, which the project's own toolchain builds.

#[cfg(fuzzing)]
pub use libfuzzer_sys;

/// What is done with an input, `|bytes: &[u8]|` or `|text: &str|`. It panics where a promise is broken.
#[cfg(fuzzing)]
#[macro_export]
macro_rules! target {
    ($($check:tt)*) => { $crate::libfuzzer_sys::fuzz_target!($($check)*); };
}

/// What is done with an input, `|bytes: &[u8]|` or `|text: &str|`. It panics where a promise is broken.
#[cfg(not(fuzzing))]
#[macro_export]
macro_rules! target {
    (|$bytes:ident: &[u8]| $check:block) => {
        fn main() {
            $crate::replay(|$bytes: &[u8]| $check);
        }
    };
    (|$text:ident: &str| $check:block) => {
        fn main() {
            let check = |$text: &str| $check;
            $crate::replay(|bytes: &[u8]| std::str::from_utf8(bytes).map_or((), check));
        }
    };
}

/// Gives `check` each file of the folders that the program was called with, naming it first.
#[cfg(not(fuzzing))]
pub fn replay(check: impl Fn(&[u8])) {
    let mut count = 0;
    for folder in std::env::args_os().skip(1) {
        for entry in std::fs::read_dir(folder).expect("a folder of inputs") {
            let path = entry.expect("listed").path();
            println!("{}", path.display());
            check(&std::fs::read(&path).expect("an input"));
            count += 1;
        }
    }
    println!("{count} inputs");
}
