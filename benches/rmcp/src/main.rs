//! `playhead-rmcp-peer PAGE_BYTES SIZE URL`, or a command line after `--`: CPU per page of a whole resource, eight reads
//! in flight and one base64 decode per page. One measurement for each line on stdin, as `benches/workers.py`.

use std::env::args;
use std::error::Error;
use std::io::stdin;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cpu_time::ProcessTime;
use futures::{StreamExt, TryStreamExt, stream};
use rmcp::ServiceExt;
use rmcp::model::{
    CallToolRequestParams, ContentBlock, ReadResourceRequestParams, ResourceContents,
};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use tokio::process::Command;

type Failure = Box<dyn Error>;

const IN_FLIGHT: usize = 8;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = args().skip(1).collect();
    let [page_bytes, size, target @ ..] = words.as_slice() else {
        return Err("expected PAGE_BYTES SIZE and a URL, or a command line after --".into());
    };
    let (page_bytes, size) = (page_bytes.parse()?, size.parse()?);
    let session = match target {
        [dashes, program, rest @ ..] if dashes == "--" => {
            let mut command = Command::new(program);
            command.args(rest);
            ().serve(TokioChildProcess::new(command)?).await?
        }
        [url] => ().serve(StreamableHttpClientTransport::from_uri(url.as_str())).await?,
        _ => return Err("expected one URL, or a command line after --".into()),
    };
    let called = session
        .call_tool(CallToolRequestParams::new("link"))
        .await?;
    let Some(ContentBlock::ResourceLink(link)) = called.content.first() else {
        return Err("expected a link".into());
    };
    let uri = link.uri.clone();
    while stdin().read_line(&mut String::new())? > 0 {
        let spent = whole(&session, &uri, page_bytes, size).await?;
        let pages = size as f64 / page_bytes as f64;
        println!("{{\"ms\": {}}}", 1000.0 * spent.as_secs_f64() / pages);
    }
    session.cancel().await?;
    Ok(())
}

/// The CPU time of reading and decoding all pages.
async fn whole(
    session: &RunningService<RoleClient, ()>,
    uri: &str,
    page_bytes: usize,
    size: usize,
) -> Result<Duration, Failure> {
    let started = ProcessTime::now();
    let received = stream::iter((0..size).step_by(page_bytes))
        .map(|start| page(session, uri, start, page_bytes))
        .buffered(IN_FLIGHT)
        .try_fold(0, async |received, data| Ok(received + data.len()))
        .await?;
    if received == size {
        Ok(started.elapsed())
    } else {
        Err(format!("expected {size} bytes, got {received}").into())
    }
}

async fn page(
    session: &RunningService<RoleClient, ()>,
    uri: &str,
    start: usize,
    page_bytes: usize,
) -> Result<Vec<u8>, Failure> {
    let range = format!("{uri}?start={start}&end={}", start + page_bytes);
    let result = session
        .read_resource(ReadResourceRequestParams::new(range))
        .await?;
    match result.contents.first() {
        Some(ResourceContents::BlobResourceContents { blob, .. }) => Ok(STANDARD.decode(blob)?),
        _ => Err("expected a blob".into()),
    }
}
