//! The states of both sides of a connection in two bytes.

/// State of one side. (A number rather than an `enum`, so that reading one from its three bits is
/// free.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint(u16);

impl Endpoint {
    pub(crate) const INACTIVE: Endpoint = Endpoint(0);
    pub(crate) const SYN_SENT: Endpoint = Endpoint(1);
    pub(crate) const SYN_ACK_SENT: Endpoint = Endpoint(2);
    pub(crate) const PARTIAL: Endpoint = Endpoint(3);
    pub(crate) const ESTABLISHED: Endpoint = Endpoint(4);
    pub(crate) const CLOSED: Endpoint = Endpoint(5);
    pub(crate) const RESET: Endpoint = Endpoint(6);

    /// Whether it sends nothing more.
    #[inline(always)]
    pub(crate) const fn is_over(self) -> bool {
        self.0 >= Endpoint::CLOSED.0
    }
}

/// Both sides' states and the ones before, three bits each. The four bits left have nothing to do with
/// TCP, whatever the protocol: two say whether a right checksum of a side was seen, one whether the flow
/// no longer hangs among attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpState(pub(crate) u16);

impl TcpState {
    /// Nothing was seen.
    pub(crate) const NONE: TcpState = TcpState(0);
    /// Both sides established, or with [`TcpState::ESTABLISHED_MASK`] established or closed.
    pub(crate) const BOTH_ESTABLISHED: u16 = 4 | 4 << 6;
    pub(crate) const ESTABLISHED_MASK: u16 = 6 | 6 << 6;
    /// The sides' states without those before.
    pub(crate) const CURRENT: u16 = 7 | 7 << 6;
    /// A right checksum of side 0 was seen; of side 1 the next bit.
    const RIGHT: u32 = 12;
    const SETTLED: u16 = 1 << 14;
    const OTHERS: u16 = 15 << TcpState::RIGHT;

    /// Only a SYN of this side was seen.
    #[inline(always)]
    pub(crate) const fn syn_sent(side: usize) -> TcpState {
        TcpState(Endpoint::SYN_SENT.0 << (6 * side))
    }

    /// The SYN of `initiator` was answered.
    #[inline(always)]
    pub(crate) const fn answer(&mut self, initiator: usize) {
        let from = (Endpoint::ESTABLISHED.0 | Endpoint::SYN_SENT.0 << 3) << (6 * initiator);
        let states = from | Endpoint::ESTABLISHED.0 << (6 * (1 - initiator));
        self.0 = self.0 & TcpState::OTHERS | states;
    }

    /// A packet of this side has a right checksum (1), or one that is not known yet (2), or neither. Returns
    /// the same up to the first that is right, then 0.
    #[inline(always)]
    pub(crate) const fn note_right(&mut self, side: usize, checksum: u16) -> u16 {
        let shift = TcpState::RIGHT + side as u32;
        let is_open = (self.0 >> shift & 1).wrapping_sub(1);
        let first = checksum & is_open;
        self.0 |= (first & 1) << shift;
        first
    }

    /// Whether the flow hangs where its protocol's do.
    #[inline(always)]
    pub(crate) const fn is_settled(self) -> bool {
        self.0 & TcpState::SETTLED != 0
    }

    /// The flow hangs where its protocol's do from now on.
    pub(crate) const fn settle(&mut self) {
        self.0 |= TcpState::SETTLED;
    }

    /// An established side closes.
    #[inline(always)]
    pub(crate) fn close(&mut self, side: usize) {
        self.set(side, Endpoint::CLOSED);
    }

    /// Of two sides that are established or closed: whether this one is closed.
    #[inline(always)]
    pub(crate) const fn has_closed(self, side: usize) -> bool {
        self.0 & 1 << (6 * side) != 0
    }

    /// Of two sides that are established or closed: whether both are closed.
    #[inline(always)]
    pub(crate) const fn is_closed(self) -> bool {
        self.0 & (1 | 1 << 6) == 1 | 1 << 6
    }

    #[inline(always)]
    pub(crate) const fn of(self, side: usize) -> Endpoint {
        Endpoint(self.0 >> (6 * side) & 7)
    }

    #[inline(always)]
    pub(crate) const fn before(self, side: usize) -> Endpoint {
        Endpoint(self.0 >> (6 * side + 3) & 7)
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, side: usize, state: Endpoint) {
        let current = self.of(side);
        if current != state {
            let shift = 6 * side;
            let bits = state.0 | current.0 << 3;
            self.0 = self.0 & !(0x3f << shift) | bits << shift;
        }
    }

    /// Established, or closed from there.
    #[inline(always)]
    pub(crate) fn is_clean(self, side: usize) -> bool {
        match self.of(side) {
            Endpoint::ESTABLISHED => true,
            Endpoint::CLOSED => self.before(side) == Endpoint::ESTABLISHED,
            _ => false,
        }
    }

    /// Whether nothing more is expected: both sides closed, or one was reset.
    #[inline(always)]
    pub(crate) fn is_over(self) -> bool {
        let (low, high) = (self.of(0), self.of(1));
        low.is_over() && high.is_over() || low == Endpoint::RESET || high == Endpoint::RESET
    }
}
