//! The scan of a message that holds a page, against `memchr` for one byte that it does not hold: the least
//! that any reader of the frame must do.
#![allow(missing_docs, reason = "criterion's macros")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use playhead_core::frame::Frame;

fn message(blob_bytes: usize) -> Vec<u8> {
    let blob = "QUJD".repeat(blob_bytes / 3);
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":{{"contents":[{{"uri":"demo:/song","mimeType":"audio/mpeg","blob":"{blob}"}}]}}}}"#
    )
    .into_bytes()
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frame");
    for kib in [100, 1024_usize] {
        let data = message(kib * 1024);
        let id = |name| BenchmarkId::new(name, format!("{kib}KiB"));
        group.throughput(Throughput::Bytes(data.len() as u64));
        group.bench_function(id("memchr"), |b| {
            b.iter(|| memchr::memchr2(0, 1, black_box(&data)));
        });
        group.bench_function(id("scan"), |b| {
            b.iter(|| Frame::scan(black_box(&data)));
        });
    }
    // As many values as a message may hold, and not one long string.
    let values = format!("[{}1]", "1,".repeat(99_999)).into_bytes();
    group.throughput(Throughput::Bytes(values.len() as u64));
    group.bench_function("values", |b| b.iter(|| Frame::scan(black_box(&values))));
    group.finish();
}

criterion_group!(scanning, benches);
criterion_main!(scanning);
