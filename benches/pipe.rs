//! A 100 KiB page through the pipe, against the bare decoder and `memcpy` of the same bytes.
//!
//! Target: `write_base64` at 0.9 or more of the bare decoder's speed. Both decode round a ring of 1 MiB,
//! because a decoder that fills the same 100 KiB again and again stays in a nearer cache.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "criterion's macros; a bench that fails may panic"
)]

use std::hint::black_box;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use playhead_core::payload::Payload;
use playhead_core::pipe::{Pipe, Wake};

const PAGE_BYTES: usize = 100 * 1024;
const CAPACITY_BYTES: usize = 1 << 20;

struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}

    fn wait_while(&self, _timeout: Option<Duration>, waiting: &mut dyn FnMut() -> bool) -> bool {
        !waiting()
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn bare() -> impl base64::Engine {
    base64::engine::Simd::standard(base64::engine::general_purpose::PAD)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn bare() -> impl base64::Engine {
    STANDARD
}

fn benches(criterion: &mut Criterion) {
    let bytes: Vec<u8> = (0..PAGE_BYTES).map(|i| (i * 31 % 251) as u8).collect();
    let text = STANDARD.encode(&bytes);
    let mut out = vec![0; PAGE_BYTES];
    let mut ring = vec![0; CAPACITY_BYTES];
    let pipe = || Pipe::<_, ()>::new(CAPACITY_BYTES as u64, 0, 0, NoWake).unwrap();

    let mut group = criterion.benchmark_group("pipe");
    group.throughput(Throughput::Bytes(PAGE_BYTES as u64));
    group.bench_function("memcpy", |b| {
        b.iter(|| out.copy_from_slice(black_box(&bytes)))
    });

    let engine = bare();
    let mut places = (0..CAPACITY_BYTES - PAGE_BYTES).step_by(PAGE_BYTES).cycle();
    group.bench_function("bare", |b| {
        b.iter(|| {
            let at = places.next().unwrap();
            engine
                .decode_slice(black_box(&text), &mut ring[at..at + PAGE_BYTES])
                .unwrap()
        });
    });

    let full = pipe();
    group.bench_function("write_base64", |b| {
        b.iter(|| {
            let at = full.tail();
            full.write(at, Payload::Text(black_box(text.as_bytes())))
                .unwrap();
            // Frees the room without a copy.
            full.seek(full.tail()).unwrap();
        });
    });

    let through = pipe();
    group.bench_function("write_base64_and_read", |b| {
        b.iter(|| {
            let at = through.tail();
            through
                .write(at, Payload::Text(black_box(text.as_bytes())))
                .unwrap();
            through.read_nowait(&mut out).unwrap();
        });
    });

    let plain = pipe();
    group.bench_function("write_and_read", |b| {
        b.iter(|| {
            let at = plain.tail();
            plain.write(at, Payload::Bytes(black_box(&bytes))).unwrap();
            plain.read_nowait(&mut out).unwrap();
        });
    });

    let empty = pipe();
    group.throughput(Throughput::Elements(1));
    group.bench_function("read_nowait_of_nothing", |b| {
        b.iter(|| empty.read_nowait(black_box(&mut out)).is_ok());
    });
    group.finish();
}

criterion_group!(piping, benches);
criterion_main!(piping);
