//! `Planner`, `PlannerStatistics` and `Request`: the core's planner behind a lock, for an interpreter without a GIL.

use std::sync::{Mutex, MutexGuard, PoisonError};

use playhead_core::planner as core;
use pyo3::prelude::*;

use crate::error::usage;

#[pyclass(frozen, get_all, module = "playhead._core")]
pub struct Request {
    id: u64,
    start: u64,
    end: u64,
    deadline: f64,
    attempt: u32,
    is_hedge: bool,
    is_confirm: bool,
}

#[pymethods]
impl Request {
    fn __repr__(&self) -> String {
        format!(
            "Request(id={}, start={}, end={}, deadline={:?}, attempt={}, is_hedge={}, is_confirm={})",
            self.id,
            self.start,
            self.end,
            self.deadline,
            self.attempt,
            if self.is_hedge { "True" } else { "False" },
            if self.is_confirm { "True" } else { "False" },
        )
    }
}

impl From<core::Request> for Request {
    fn from(request: core::Request) -> Self {
        let core::Request {
            id,
            start,
            end,
            deadline,
            attempt,
            is_hedge,
            is_confirm,
        } = request;
        Self {
            id,
            start,
            end,
            deadline,
            attempt,
            is_hedge,
            is_confirm,
        }
    }
}

#[pyclass(frozen, get_all, module = "playhead._core")]
pub struct PlannerStatistics {
    requests: u64,
    pages: u64,
    bytes: u64,
    retries: u64,
    hedges: u64,
    short_pages: u64,
    empty_pages: u64,
    in_flight: usize,
    in_flight_max: usize,
    page_bytes: u64,
    bandwidth_bytes_per_second: Option<f64>,
    rtt_seconds: Option<f64>,
    size_was_wrong: bool,
    ended_by_size: bool,
}

impl From<core::Statistics> for PlannerStatistics {
    fn from(statistics: core::Statistics) -> Self {
        Self {
            requests: statistics.requests,
            pages: statistics.pages,
            bytes: statistics.bytes,
            retries: statistics.retries,
            hedges: statistics.hedges,
            short_pages: statistics.short_pages,
            empty_pages: statistics.empty_pages,
            in_flight: statistics.in_flight,
            in_flight_max: statistics.in_flight_max,
            page_bytes: statistics.page_bytes,
            bandwidth_bytes_per_second: statistics.bandwidth_bytes_per_second,
            rtt_seconds: statistics.rtt_seconds,
            size_was_wrong: statistics.size_was_wrong,
            ended_by_size: statistics.ended_by_size,
        }
    }
}

#[pyclass(frozen, module = "playhead._core")]
pub struct Planner(Mutex<core::Planner>);

impl Planner {
    /// The planner never panics while it is locked, so a poisoned lock holds a sound planner.
    fn lock(&self) -> MutexGuard<'_, core::Planner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Planner {
    #[new]
    #[pyo3(signature = (*, capacity_bytes, page_min_bytes=8192, page_bytes=102_400, in_flight=8, in_flight_start=3,
        max_tries=6, deadline_seconds=30.0, nominal_rate_bytes=40_000.0, hedge=true, seed=0, start=0))]
    #[allow(clippy::too_many_arguments, reason = "keywords on the Python side")]
    fn new(
        py: Python<'_>,
        capacity_bytes: u64,
        page_min_bytes: u64,
        page_bytes: u64,
        in_flight: usize,
        in_flight_start: usize,
        max_tries: u32,
        deadline_seconds: f64,
        nominal_rate_bytes: f64,
        hedge: bool,
        seed: u64,
        start: u64,
    ) -> PyResult<Self> {
        let settings = core::Settings {
            capacity_bytes,
            page_min_bytes,
            page_bytes,
            in_flight,
            in_flight_start,
            max_tries,
            deadline_seconds,
            nominal_rate_bytes,
            hedge,
            seed,
            start,
        };
        let planner = core::Planner::new(settings).map_err(|error| usage(py, error.to_string()))?;
        Ok(Self(Mutex::new(planner)))
    }

    fn next(&self, now: f64, head: u64) -> Option<Request> {
        self.lock().next(now, head).map(Request::from)
    }

    fn on_page(&self, id: u64, now: f64, n_bytes: u64) -> bool {
        self.lock().on_page(id, now, n_bytes)
    }

    fn on_error(&self, id: u64, now: f64, retryable: bool) {
        self.lock().on_error(id, now, retryable);
    }

    fn expired(&self, now: f64) -> Vec<u64> {
        self.lock().expired(now)
    }

    fn timer(&self) -> Option<f64> {
        self.lock().timer()
    }

    fn seek(&self, offset: u64) -> Vec<u64> {
        self.lock().seek(offset)
    }

    fn set_total(&self, total_bytes: u64) {
        self.lock().set_total(total_bytes);
    }

    fn set_page_bytes(&self, page_bytes: u64) {
        self.lock().set_page_bytes(page_bytes);
    }

    fn set_in_flight(&self, limit: usize) {
        self.lock().set_in_flight(limit);
    }

    fn can_play(
        &self,
        now: f64,
        buffered_bytes: u64,
        needed_bytes: u64,
        left_bytes: Option<u64>,
    ) -> bool {
        self.lock()
            .can_play(now, buffered_bytes, needed_bytes, left_bytes)
    }

    #[getter]
    fn end(&self) -> Option<u64> {
        self.lock().end()
    }

    #[getter]
    fn finished(&self) -> bool {
        self.lock().finished()
    }

    #[getter]
    fn failed(&self) -> Option<(u64, u32)> {
        self.lock().failed()
    }

    #[getter]
    fn contradiction(&self) -> Option<u64> {
        self.lock().contradiction()
    }

    fn statistics(&self) -> PlannerStatistics {
        self.lock().statistics().into()
    }
}
