//! The server and its link: where each request is, and what happens to it next.

use super::{Discipline, OutageKind, Random, WIRE, World};

/// JSON around a page.
const ENVELOPE_BYTES: f64 = 250.0;
/// A noisy link has another rate after so long.
const NOISE_SECONDS: f64 = 0.05;
/// Bytes left that count as none, below any rounding of a fluid.
const DRY_BYTES: f64 = 1e-3;

#[derive(Clone, Copy, Debug)]
pub enum Answer {
    Bytes(u64),
    Failed,
}

struct Transfer {
    id: u64,
    answer: Answer,
    left: f64,
}

pub struct Network {
    world: World,
    random: Random,
    server_free_at: f64,
    now: f64,
    /// (when, what), at the server or on the way back.
    serving: Vec<(f64, Transfer)>,
    sending: Vec<Transfer>,
    returning: Vec<(f64, Transfer)>,
}

impl Network {
    pub fn new(world: World) -> Self {
        Self {
            world,
            random: Random::new(world.seed),
            server_free_at: 0.0,
            now: 0.0,
            serving: vec![],
            sending: vec![],
            returning: vec![],
        }
    }

    pub fn send(&mut self, now: f64, id: u64, start: u64, end: u64) {
        let world = self.world;
        if self.random.unit() < world.loss {
            return;
        }
        let asked = end.min(world.size_bytes).saturating_sub(start);
        let bytes = world.cap_bytes.map_or(asked, |cap| asked.min(cap));
        let arrival = now + world.rtt_seconds / 2.0;
        let outage = world.outage.filter(|outage| outage.covers(arrival));
        let is_refused = outage.is_some_and(|outage| outage.kind == OutageKind::Fails);
        if is_refused || self.random.unit() < world.errors {
            let transfer = Transfer {
                id,
                answer: Answer::Failed,
                left: ENVELOPE_BYTES,
            };
            self.serving.push((arrival, transfer));
            return;
        }
        let answer = Answer::Bytes(bytes);
        let base = match world.slowdown {
            Some(slow) if arrival >= slow.at_seconds => slow.cost_seconds,
            _ => world.cost_seconds,
        };
        let cost = base + self.random.exponential(world.jitter_seconds);
        let arrival = outage.map_or(arrival, |outage| outage.ends_at());
        let served = if world.serial {
            arrival.max(self.server_free_at) + cost
        } else {
            arrival + cost
        };
        if world.serial {
            self.server_free_at = served;
        }
        self.serving.push((
            served,
            Transfer {
                id,
                answer,
                left: bytes as f64 * WIRE + ENVELOPE_BYTES,
            },
        ));
    }

    /// Nobody waits for it any more. A serial server has spent its time on it all the same.
    pub fn cancel(&mut self, id: u64) {
        self.serving.retain(|(_, transfer)| transfer.id != id);
        self.sending.retain(|transfer| transfer.id != id);
        self.returning.retain(|(_, transfer)| transfer.id != id);
    }

    pub fn is_idle(&self) -> bool {
        self.serving.is_empty() && self.sending.is_empty() && self.returning.is_empty()
    }

    pub fn is_sending(&self) -> bool {
        !self.sending.is_empty()
    }

    fn bytes_per_second(&self) -> f64 {
        let rate = match self.world.slowdown {
            Some(slow) if self.now >= slow.at_seconds => slow.bytes_per_second,
            _ => self.world.bytes_per_second,
        };
        let turn = Random::new(self.world.seed.wrapping_mul(1 << 20) + self.turn()).unit();
        rate * (1.0 + self.world.noise * (2.0 * turn - 1.0))
    }

    fn turn(&self) -> u64 {
        (self.now / NOISE_SECONDS + 1e-6) as u64
    }

    fn active(&self) -> usize {
        match self.world.discipline {
            Discipline::FairShare => self.sending.len(),
            Discipline::Fifo => self.sending.len().min(1),
        }
    }

    pub fn next_event(&self, now: f64) -> f64 {
        let active = self.active();
        let share = self.bytes_per_second() / active as f64;
        let sent = self
            .sending
            .iter()
            .take(active)
            .map(|transfer| now + transfer.left / share);
        let timed = self
            .serving
            .iter()
            .chain(&self.returning)
            .map(|(at, _)| *at);
        let slowdown = self
            .world
            .slowdown
            .map(|slow| slow.at_seconds)
            .filter(|&at| at > now && active > 0);
        let turn = (self.world.noise > 0.0 && active > 0)
            .then(|| (self.turn() + 1) as f64 * NOISE_SECONDS);
        sent.chain(timed)
            .chain(slowdown)
            .chain(turn)
            .fold(f64::INFINITY, f64::min)
    }

    /// Delivers the bytes until `next`, which is at most the next event.
    pub fn advance_to(&mut self, next: f64) -> Vec<(u64, Answer)> {
        let active = self.active();
        let moved = (next - self.now) * self.bytes_per_second() / active.max(1) as f64;
        // A transfer that would end within the clock's resolution has ended, or time would stand still.
        let resolution = self.bytes_per_second() * next * 4.0 * f64::EPSILON;
        for transfer in self.sending.iter_mut().take(active) {
            transfer.left -= moved;
        }
        self.now = next;
        let back = next + self.world.rtt_seconds / 2.0;
        let (sent, sending) = std::mem::take(&mut self.sending)
            .into_iter()
            .partition(|transfer: &Transfer| transfer.left <= DRY_BYTES.max(resolution));
        self.sending = sending;
        self.returning
            .extend(Vec::into_iter(sent).map(|transfer| (back, transfer)));
        let (mut served, serving): (Vec<_>, Vec<_>) = std::mem::take(&mut self.serving)
            .into_iter()
            .partition(|(at, _)| *at <= next);
        served.sort_by(|(left, _), (right, _)| left.total_cmp(right));
        self.serving = serving;
        self.sending
            .extend(served.into_iter().map(|(_, transfer)| transfer));
        let (mut arrived, returning): (Vec<_>, Vec<_>) = std::mem::take(&mut self.returning)
            .into_iter()
            .partition(|(at, _)| *at <= next);
        arrived.sort_by(|(left, _), (right, _)| left.total_cmp(right));
        self.returning = returning;
        arrived
            .into_iter()
            .map(|(_, transfer)| (transfer.id, transfer.answer))
            .collect()
    }
}
