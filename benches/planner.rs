//! The cost of planning a page: one `on_answer` and the `next` that follows, compared with a queue of fixed ranges.

use std::collections::VecDeque;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use playhead_core::planner::{Planner, Request, Settings};

const PAGE: u64 = 100 << 10;

/// Long enough that only the request window limits, so that it is full.
const LATENCY_SECONDS: f64 = 0.05;

struct Reader {
    planner: Planner,
    now: f64,
    head: u64,
    out: VecDeque<(f64, Request)>,
}

impl Reader {
    fn new(in_flight: usize) -> Self {
        let mut settings = Settings::new(64 << 20);
        settings.in_flight = Some(in_flight);
        settings.page_bytes_max = PAGE; // so that the window of requests is the limit
        let Ok(planner) = Planner::new(settings) else {
            unreachable!("these settings are in range")
        };
        let mut reader = Self {
            planner,
            now: 0.0,
            head: 0,
            out: VecDeque::new(),
        };
        for _ in 0..10_000 {
            reader.take_page();
        }
        assert_eq!(reader.out.len(), in_flight, "the window is not full");
        reader
    }

    /// The oldest answer comes, after what the timer asks for before it, and the reader takes it.
    fn take_page(&mut self) {
        if let Some((asked_at, request)) = self.out.pop_front() {
            let due = self.now.max(asked_at + LATENCY_SECONDS);
            while let Some(at) = self.planner.timer().filter(|&at| at < due) {
                self.now = at;
                self.ask();
            }
            self.now = due;
            let bytes = request.end - request.start;
            black_box(self.planner.on_answer(request.id, due, bytes, None));
            self.head = request.end;
        }
        self.ask();
    }

    fn ask(&mut self) {
        while let Some(request) = self.planner.next(self.now, self.head) {
            self.out.push_back((self.now, request));
        }
    }
}

fn plan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("planner");
    for in_flight in [8, 64] {
        let mut reader = Reader::new(in_flight);
        group.bench_function(format!("page/{in_flight}_in_flight"), |bencher| {
            bencher.iter(|| reader.take_page());
        });
    }
    let mut queue: VecDeque<(u64, u64)> = (0..8)
        .map(|page| (page * PAGE, (page + 1) * PAGE))
        .collect();
    group.bench_function("page/fixed_queue_baseline", |bencher| {
        bencher.iter(|| {
            if let Some((start, end)) = queue.pop_front() {
                queue.push_back((start + 8 * PAGE, end + 8 * PAGE));
            }
            black_box(queue.back().copied())
        });
    });
    group.finish();
}

criterion_group!(benches, plan);
criterion_main!(benches);
