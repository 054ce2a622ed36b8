//! What a page costs to plan: one `on_page` and the `next` it allows, beside a queue of fixed ranges that plans nothing.

use std::collections::VecDeque;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use playhead_core::planner::{Planner, Settings};

const PAGE: u64 = 100 << 10;

/// A planner at its full window, with the requests it has out.
fn warmed_up(in_flight: usize) -> (Planner, VecDeque<(u64, u64, u64)>) {
    let mut settings = Settings::new(64 << 20);
    settings.in_flight = in_flight;
    // Settings above are in range, or there is nothing to measure.
    let Ok(planner) = Planner::new(settings) else {
        unreachable!()
    };
    let mut bench = (planner, VecDeque::new());
    let (mut now, mut head) = (0.0, 0);
    for _ in 0..10_000 {
        cycle(&mut bench, &mut now, &mut head);
    }
    bench
}

fn cycle((planner, out): &mut (Planner, VecDeque<(u64, u64, u64)>), now: &mut f64, head: &mut u64) {
    *now += 1e-4;
    if let Some((id, start, end)) = out.pop_front() {
        black_box(planner.on_page(id, *now, end - start));
        *head = end;
    }
    while let Some(request) = planner.next(*now, *head) {
        out.push_back((request.id, request.start, request.end));
    }
}

fn plan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("planner");
    for in_flight in [8, 64] {
        let mut state = warmed_up(in_flight);
        // Later than any instant of the warm-up; the reader stands where the last page ended.
        let mut now = 2.0;
        let mut head = state.1.front().map_or(0, |(_, start, _)| *start);
        group.bench_function(format!("page/{in_flight}_in_flight"), |bencher| {
            bencher.iter(|| cycle(&mut state, &mut now, &mut head));
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
