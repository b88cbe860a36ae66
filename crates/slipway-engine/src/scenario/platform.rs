//! What a player needs of the world.

use std::borrow::Cow;
use std::io;

use slipway_lab::id::NodeId;
use slipway_lab::scenario::Order;
use slipway_measure::play::Change;

use super::error::ActError;

/// A lab as a player sees it: something that acts, tells what happens, and has a clock.
pub trait Platform {
    /// Nanoseconds of a clock that only goes forward.
    fn now(&self) -> u64;

    /// Waits until `until` on that clock (for ever where `None`) or until something happens, and says what has.
    ///
    /// # Errors
    /// When the machine refuses to wait; there is no going on then.
    fn wait(&mut self, until: Option<u64>) -> io::Result<Vec<Happening>>;

    /// Begins `act` for event `number`. What cannot be done at once goes on beside and ends with
    /// [`Happening::Finished`], so that nothing delays the events after it.
    fn begin(&mut self, number: usize, act: &Act<'_>) -> Begun;

    /// Forgets the changes of these events, which later ones hide for good.
    fn forget(&mut self, changes: &[usize]);

    /// What it has seen that casts doubt on the result.
    fn alarms(&mut self) -> Vec<String>;
}

/// What is asked of the platform.
#[expect(clippy::large_enum_variant, reason = "nearly every one is an order")]
#[derive(Debug, Clone, PartialEq)]
pub enum Act<'a> {
    /// Carries an order out. A change of links or limits lies over those that hold, until it is taken back.
    Order(Cow<'a, Order>),
    /// Takes back the change that this event made, from wherever it lies among the others.
    Undo(usize),
    /// Runs a program in nodes, without waiting for its end.
    Run(Vec<NodeId>, &'a [String]),
    /// Ends the programs that this event started.
    EndPrograms(usize),
}

/// How far an act is.
#[derive(Debug)]
pub enum Begun {
    /// It has taken effect.
    Done,
    /// It goes on beside.
    UnderWay,
    /// It could not be done.
    Failed(ActError),
}

/// Something that happened.
#[derive(Debug)]
pub enum Happening {
    /// What was under way for an event has taken effect, or could not be done.
    Finished(usize, Result<(), ActError>),
    /// What is under way for an event had to wait. For what.
    Waited(usize, String),
    /// The programs that an event started have ended, each in a node, with a code as a shell says it.
    ProgramsEnded(usize, Vec<(NodeId, u8)>),
    /// A node has ended, and it was not the player.
    NodeEnded(NodeId, Change),
    /// A node runs again, and it was not the player.
    NodeStarted(NodeId),
    /// Somebody asks for the scenario's clock to stop.
    Pause,
    /// Somebody asks for it to go on.
    Resume,
    /// The job beside which it plays has ended.
    JobEnded,
    /// The job is on another machine, and nothing will be heard of it any more.
    Alone,
    /// The playing is to end now. Why.
    Stop(String),
    /// How busy the machine was in the last second: the share of processor time that was not idle.
    Load(f64),
}
