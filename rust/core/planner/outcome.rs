//! How a stream ends, and what is believed of its size.

/// What proves an end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Proof {
    /// An empty answer.
    Empty,
    /// The announced size, and a refusal to read past it.
    Announced,
}

/// What is known of the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ending {
    Unknown,
    Proven {
        at: u64,
        proof: Proof,
    },
    /// Bytes were given past an end: the server disagrees with itself, and no end can be believed.
    Contradicted {
        at: u64,
    },
}

/// What is believed of the size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Size {
    Unknown,
    Announced(u64),
    /// The bytes said otherwise; planning goes on as if nothing had been announced.
    Refuted,
}

impl Size {
    pub fn bytes_to(&mut self, offset: u64) {
        if matches!(*self, Self::Announced(total) if offset > total) {
            *self = Self::Refuted;
        }
    }

    /// An end past the announced size says nothing against it: the lowest empty answer may yet come.
    pub fn ends_at(&mut self, offset: u64) {
        if matches!(*self, Self::Announced(total) if offset < total) {
            *self = Self::Refuted;
        }
    }

    pub fn is_announced_at(self, offset: u64) -> bool {
        self == Self::Announced(offset)
    }

    pub fn announced(self) -> u64 {
        match self {
            Self::Announced(total) => total,
            Self::Unknown | Self::Refuted => u64::MAX,
        }
    }
}

/// The lowest page that failed for good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Trouble {
    pub offset: u64,
    pub tries: u32,
}
