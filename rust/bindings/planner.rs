//! `Planner`, `PlannerStatistics` and `Request`: the core's planner behind a lock, for an interpreter without a GIL.
//!
//! The core's enums are strings in Python; each string is listed once, here.

use std::sync::{Mutex, MutexGuard};

use playhead_core::planner as core;
use playhead_core::planner::{Broken, Demand, EndedBy, Failure};
use pyo3::prelude::*;

use crate::error::usage;
use crate::lock::lock;

const ENDS: [(&str, EndedBy); 7] = [
    ("empty", EndedBy::Empty),
    ("done", EndedBy::Done),
    ("416", EndedBy::PastEnd),
    ("size", EndedBy::Size),
    ("error", EndedBy::Error),
    ("whole", EndedBy::Whole),
    ("no-growth", EndedBy::NoGrowth),
];
const DEMANDS: [(&str, Demand); 3] = [
    ("supplied", Demand::Supplied),
    ("waiting", Demand::Waiting),
    ("paused", Demand::Paused),
];

/// The value that `table` has for `word`; `what` names the argument in the error.
fn value_of<T: Copy>(py: Python<'_>, table: &[(&str, T)], word: &str, what: &str) -> PyResult<T> {
    let entry = table.iter().find(|(name, _)| *name == word);
    entry.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = table.iter().map(|(name, _)| *name).collect();
        usage(
            py,
            format!("{what}: expected one of {}, got {word:?}", names.join(", ")),
        )
    })
}

/// The word for `by`.
fn word_of(by: EndedBy) -> &'static str {
    ENDS.iter()
        .find(|(_, value)| *value == by)
        .map_or("", |(name, _)| name)
}

/// One range to read now.
#[pyclass(frozen, get_all, module = "playhead._core")]
pub struct Request {
    id: u64,
    start: u64,
    end: u64,
    is_retry: bool,
    is_hedge: bool,
    is_probe: bool,
}

#[pymethods]
impl Request {
    fn __repr__(&self) -> String {
        let name = |flag| if flag { "True" } else { "False" };
        format!(
            "Request(id={}, start={}, end={}, is_retry={}, is_hedge={}, is_probe={})",
            self.id,
            self.start,
            self.end,
            name(self.is_retry),
            name(self.is_hedge),
            name(self.is_probe),
        )
    }
}

impl From<core::Request> for Request {
    fn from(request: core::Request) -> Self {
        Self {
            id: request.id,
            start: request.start,
            end: request.end,
            is_retry: request.is_retry,
            is_hedge: request.is_hedge,
            is_probe: request.is_probe,
        }
    }
}

/// A snapshot of the planner's counters and estimates.
#[pyclass(frozen, get_all, module = "playhead._core")]
pub struct PlannerStatistics {
    requests: u64,
    pages: u64,
    bytes: u64,
    retries: u64,
    hedges: u64,
    in_flight: usize,
    in_flight_max: usize,
    bandwidth_bytes_per_second: Option<f64>,
    rtt_seconds: Option<f64>,
    size_was_wrong: bool,
}

impl From<core::Statistics> for PlannerStatistics {
    fn from(statistics: core::Statistics) -> Self {
        Self {
            requests: statistics.requests,
            pages: statistics.pages,
            bytes: statistics.bytes,
            retries: statistics.retries,
            hedges: statistics.hedges,
            in_flight: statistics.in_flight,
            in_flight_max: statistics.in_flight_max,
            bandwidth_bytes_per_second: statistics.bandwidth_bytes_per_second,
            rtt_seconds: statistics.rtt_seconds,
            size_was_wrong: statistics.size_was_wrong,
        }
    }
}

/// The planner of one stream; each method locks it for the length of the call.
#[pyclass(frozen, module = "playhead._core")]
pub struct Planner(Mutex<core::Planner>);

impl Planner {
    fn lock(&self) -> MutexGuard<'_, core::Planner> {
        lock(&self.0)
    }
}

#[pymethods]
impl Planner {
    #[classattr]
    const START_SECONDS: f64 = core::START_SECONDS;
    #[classattr]
    const REFILL_SECONDS: f64 = core::REFILL_SECONDS;

    /// Creates a planner; a setting that is None takes the default of the core.
    #[new]
    #[pyo3(signature = (*, capacity_bytes, page_min_bytes=None, page_bytes=None, page_bytes_max=None, grid_bytes=0,
        in_flight=None, timeout_seconds=None, patience_seconds=None, sleeps_when_full=false, stagnant_answers=None, seed=0, start=0))]
    #[allow(clippy::too_many_arguments, reason = "keywords on the Python side")]
    fn new(
        py: Python<'_>,
        capacity_bytes: u64,
        page_min_bytes: Option<u64>,
        page_bytes: Option<u64>,
        page_bytes_max: Option<u64>,
        grid_bytes: u64,
        in_flight: Option<usize>,
        timeout_seconds: Option<f64>,
        patience_seconds: Option<f64>,
        sleeps_when_full: bool,
        stagnant_answers: Option<u32>,
        seed: u64,
        start: u64,
    ) -> PyResult<Self> {
        let defaults = core::Settings::new(capacity_bytes);
        let settings = core::Settings {
            page_min_bytes: page_min_bytes.unwrap_or(defaults.page_min_bytes),
            page_bytes: page_bytes.unwrap_or(defaults.page_bytes),
            page_bytes_max: page_bytes_max.unwrap_or(defaults.page_bytes_max),
            grid_bytes,
            in_flight,
            timeout_seconds: timeout_seconds.unwrap_or(defaults.timeout_seconds),
            patience_seconds: patience_seconds.unwrap_or(defaults.patience_seconds),
            sleeps_when_full,
            stagnant_answers: stagnant_answers.unwrap_or(defaults.stagnant_answers),
            seed,
            start,
            ..defaults
        };
        let planner = core::Planner::new(settings).map_err(|error| usage(py, error.to_string()))?;
        Ok(Self(Mutex::new(planner)))
    }

    /// Returns the next request to send, or None until another event.
    fn next(&self, now: f64, head: u64) -> Option<Request> {
        self.lock().next(now, head).map(Request::from)
    }

    /// Handles an answer of `n_bytes`. Returns whether its bytes are to be stored.
    #[pyo3(signature = (id, now, n_bytes, end=None))]
    fn on_answer(
        &self,
        py: Python<'_>,
        id: u64,
        now: f64,
        n_bytes: u64,
        end: Option<&str>,
    ) -> PyResult<bool> {
        let end = end
            .map(|word| value_of(py, &ENDS, word, "end"))
            .transpose()?;
        Ok(self.lock().on_answer(id, now, n_bytes, end))
    }

    /// Handles the failure of a request.
    #[pyo3(signature = (id, now, kind, *, code=None, retry_after_seconds=None, broke_off=false))]
    #[allow(clippy::too_many_arguments, reason = "keywords on the Python side")]
    fn on_error(
        &self,
        py: Python<'_>,
        id: u64,
        now: f64,
        kind: &str,
        code: Option<i64>,
        retry_after_seconds: Option<f64>,
        broke_off: bool,
    ) -> PyResult<()> {
        let kinds = [
            (
                "lost",
                Failure::Lost {
                    retry_after: retry_after_seconds,
                    broke_off,
                    code,
                },
            ),
            (
                "refused",
                Failure::Refused {
                    code: code.unwrap_or(0),
                },
            ),
            ("damaged", Failure::Damaged),
            ("final", Failure::Final),
        ];
        let failure = value_of(py, &kinds, kind, "kind")?;
        self.lock().on_error(id, now, failure);
        Ok(())
    }

    /// Records that the driver stored bytes from its own probes.
    fn on_fed(&self, now: f64, n_bytes: u64) {
        self.lock().on_fed(now, n_bytes);
    }

    /// Records that a probe showed bytes up to `offset`.
    fn seen_to(&self, offset: u64) {
        self.lock().seen_to(offset);
    }

    /// One past the highest byte that was ever served.
    #[getter]
    fn served_to(&self) -> u64 {
        self.lock().served_to()
    }

    /// The size of the next new page.
    #[getter]
    fn page_bytes(&self) -> u64 {
        self.lock().page_bytes()
    }

    /// Holds an answer while the driver judges it: it is neither late nor read again.
    fn hold(&self, id: u64) {
        self.lock().hold(id);
    }

    /// Queues a read whose answer the driver judges.
    fn probe(&self, start: u64, end: u64) {
        self.lock().probe(start, end);
    }

    /// Sends only probes after a call with true, until one with false.
    fn hold_pages(&self, hold: bool) {
        self.lock().hold_pages(hold);
    }

    /// Records that bytes of an answer arrived at `at`.
    fn heard(&self, at: f64) {
        self.lock().heard(at);
    }

    /// Sets how urgently the listener needs bytes.
    fn set_demand(&self, py: Python<'_>, now: f64, demand: &str) -> PyResult<()> {
        let demand = value_of(py, &DEMANDS, demand, "demand")?;
        self.lock().set_demand(now, demand);
        Ok(())
    }

    /// Returns the ids of the requests to cancel.
    fn expired(&self, now: f64) -> Vec<u64> {
        self.lock().expired(now)
    }

    /// Returns the time at which to look again if there is no event before.
    fn timer(&self) -> Option<f64> {
        self.lock().timer()
    }

    /// Moves the reader to `offset`. Returns the ids of the requests to cancel.
    fn seek(&self, offset: u64) -> Vec<u64> {
        self.lock().seek(offset)
    }

    /// Records an announced size.
    #[pyo3(signature = (total_bytes, *, exact=false))]
    fn set_total(&self, total_bytes: u64, exact: bool) {
        self.lock().set_total(total_bytes, exact);
    }

    /// Sets a known end.
    fn set_end(&self, py: Python<'_>, at: u64, by: &str) -> PyResult<()> {
        let by = value_of(py, &ENDS, by, "by")?;
        self.lock().set_end(at, by);
        Ok(())
    }

    /// Sets that the resource grows, and its present size.
    #[pyo3(signature = (now, size_bytes, *, announces_end=false))]
    fn set_growing(&self, now: f64, size_bytes: u64, announces_end: bool) {
        self.lock().set_growing(now, size_bytes, announces_end);
    }

    /// Sets whether the server notifies of growth.
    fn set_notifies(&self, now: f64, notifies: bool) {
        self.lock().set_notifies(now, notifies);
    }

    /// Records a notification of growth.
    fn on_notified(&self, now: f64) {
        self.lock().on_notified(now);
    }

    /// Sets the seconds of audio that are not played yet.
    fn set_in_hand(&self, now: f64, seconds: f64) {
        self.lock().set_in_hand(now, seconds);
    }

    /// Sets that the resource grows no more, and its size if known.
    #[pyo3(signature = (now, size_bytes=None))]
    fn set_grown(&self, now: f64, size_bytes: Option<u64>) {
        self.lock().set_grown(now, size_bytes);
    }

    /// The size so far of a resource that grows.
    #[getter]
    fn present_bytes(&self) -> Option<u64> {
        self.lock().present_bytes()
    }

    /// Sets the server's own page size.
    fn set_page_bytes(&self, page_bytes: u64) {
        self.lock().set_page_bytes(page_bytes);
    }

    /// Returns whether playing may start or resume, and records the rate of the audio.
    fn can_play(
        &self,
        now: f64,
        in_hand_bytes: u64,
        bytes_per_second: f64,
        left_bytes: Option<u64>,
    ) -> bool {
        let mut planner = self.lock();
        planner.set_audio_rate(bytes_per_second);
        planner.can_play(now, in_hand_bytes, bytes_per_second, left_bytes)
    }

    /// Returns how long the reader has waited without progress.
    fn waited_seconds(&self, now: f64) -> f64 {
        self.lock().waited_seconds(now)
    }

    /// Returns how long the reader may wait before the stream breaks.
    fn allowed_seconds(&self) -> f64 {
        self.lock().allowed_seconds()
    }

    /// The accepted end and its evidence.
    #[getter]
    fn end(&self) -> Option<(u64, &'static str)> {
        self.lock().end().map(|end| (end.at, word_of(end.by)))
    }

    /// The announced size, unless bytes refuted it.
    #[getter]
    fn total(&self) -> Option<u64> {
        self.lock().total()
    }

    /// True once every byte up to the accepted end has arrived.
    #[getter]
    fn finished(&self) -> bool {
        self.lock().finished()
    }

    /// The offset at which the stream breaks, the reason, and its number: seconds to wait, or answers.
    #[getter]
    fn broken(&self) -> Option<(u64, &'static str, f64)> {
        let (offset, reason) = self.lock().broken()?;
        Some(match reason {
            Broken::Patience => (offset, "patience", 0.0),
            Broken::RetryAfter(seconds) => (offset, "retry-after", seconds),
            Broken::Refused => (offset, "refused", 0.0),
            Broken::Stagnant(answers) => (offset, "stagnant", f64::from(answers)),
            Broken::Contradiction => (offset, "contradiction", 0.0),
            Broken::Shrunken => (offset, "shrunken", 0.0),
        })
    }

    /// Takes a snapshot.
    fn statistics(&self) -> PlannerStatistics {
        self.lock().statistics().into()
    }
}
