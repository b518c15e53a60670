//! What the subagent needs of the tables.

use crate::{Missing, Oid, SetError, Value};

/// A time in hundredths of a second on the clock of whoever fills the tables, which goes on when the
/// master restarts (sysUpTime does not). It must be far from 0 at the start, as masters run already.
pub type Ticks = u64;

/// What managers are to be told (RFC 3416, 4.2.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Its type: the value of snmpTrapOID.0, as 1.3.6.1.2.1.16.0.1 of risingAlarm.
    pub kind: Oid,
    /// Its objects, in the order of the type's OBJECTS.
    pub objects: Vec<(Oid, Value)>,
}

/// Objects by their names.
///
/// A set has two phases. [`Tree::test`] changes nothing that is seen by others and refuses all that can
/// be refused; then the change is committed, and perhaps undone as another agent failed, or it is dropped.
/// Between both anything else may happen, another test included: a commit that is no longer possible
/// fails.
pub trait Tree {
    /// A set that was tested: what is needed to do it, and, once it is done, to undo it.
    type Change;

    /// The sub-trees to register, each with all that [`Tree::next`] finds in it.
    fn roots(&self) -> Vec<Oid>;

    /// sysUpTime is `at` of the tables' clock minus `zero`. Told whenever the master was started anew:
    /// marks and creation times before `zero` are 0 from then on.
    fn set_zero(&mut self, zero: Ticks);

    /// The value of one object.
    fn get(&mut self, name: &Oid) -> Result<Value, Missing>;

    /// The first object behind `start` (or `start` itself, with `include`) and before `end`.
    fn next(&mut self, start: &Oid, include: bool, end: Option<&Oid>) -> Option<(Oid, Value)>;

    /// Whether all these can be set together. Else the position of one that cannot, from 0.
    fn test(&mut self, set: &[(Oid, Value)]) -> Result<Self::Change, (usize, SetError)>;

    /// Does all of what was tested, or nothing of it; then the position of what failed.
    fn commit(&mut self, change: &mut Self::Change) -> Result<(), usize>;

    /// Takes back what was committed, so that nothing of it is left.
    fn undo(&mut self, change: Self::Change) -> Result<(), usize>;

    /// What managers are to be told since the last call.
    fn notifications(&mut self) -> Vec<Notification>;
}
