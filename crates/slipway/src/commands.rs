//! The subcommands, a file each. To add one: its file, and its line here.

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Makes a command of what its parser matched.
type Read = fn(&clap::ArgMatches) -> Result<Command, clap::Error>;

/// The subcommand of a module. `move` is a word of Rust too.
fn word_of(module: &'static str) -> &'static str {
    module.trim_start_matches("r#")
}

/// Declares the modules, the enum that clap reads, the order of `slipway --help`, and who runs what.
macro_rules! commands {
    ($($heading:literal { $($module:ident $name:ident,)* })*) => {
        $($(mod $module;)*)*
        mod machine;
        mod man;

        /// A subcommand with its arguments.
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Command {
            $($($name($module::Args),)*)*
            #[command(hide = true)]
            Machine(machine::Args),
            #[command(hide = true)]
            Man(man::Args),
        }

        /// Headings of the overview, and the commands under each.
        pub(crate) const GROUPS: &[(&str, &[&str])] = &[$(($heading, &[$(stringify!($name)),*])),*];

        impl Command {
            /// The parser of the subcommand `word` alone, and what makes the command of its matches.
            pub(crate) fn alone(word: &str) -> Option<(clap::Command, Read)> {
                $($(if word == word_of(stringify!($module)) {
                    let parser = clap::Command::new(word_of(stringify!($module)));
                    let parser = <$module::Args as clap::Args>::augment_args(parser);
                    return Some((parser, |matches| {
                        <$module::Args as clap::FromArgMatches>::from_arg_matches(matches).map(Self::$name)
                    }));
                })*)*
                None
            }

            /// Runs it.
            pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
                match self {
                    $($(Self::$name(args) => args.run(context),)*)*
                    Self::Machine(args) => args.run(context),
                    Self::Man(args) => args.run(context),
                }
            }
        }
    };
}

commands! {
    "Labs" {
        init Init,
        up Up,
        down Down,
        ps Ps,
        inspect Inspect,
        graph Graph,
        export Export,
        import Import,
    }
    "Programs and files in nodes" {
        run Run,
        submit Submit,
        exec Exec,
        enter Enter,
        shell Shell,
        copy Copy,
        save Save,
        logs Logs,
    }
    "Measuring" {
        compare Compare,
        bench Bench,
    }
    "Campaigns" {
        campaign Campaign,
    }
    "Conditions" {
        set Set,
        cut Cut,
        heal Heal,
        partition Partition,
        join Join,
        restore Restore,
        verify Verify,
    }
    "Fast networks" {
        fast Fast,
        policy Policy,
    }
    "Scenarios" {
        play Play,
        pause Pause,
        resume Resume,
    }
    "Nodes" {
        stop Stop,
        start Start,
        r#move Move,
        freeze Freeze,
        thaw Thaw,
        kill Kill,
    }
    "This machine" {
        transfer Transfer,
        agent Agent,
        doctor Doctor,
        tune Tune,
        completion Completion,
        schema Schema,
    }
}
