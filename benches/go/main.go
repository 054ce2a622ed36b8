// A lean MCP server and the reference's reading loop, for the benchmarks.
//
//	playhead-bench serve -transport http -size 33554432    # prints its URL, lives while its stdin is open
//	playhead-bench serve -transport stdio -blob 49283072
//	playhead-bench serve -transport ws
//	playhead-bench serve -file music.mp3                   # `link` with {"song": n}: it begins elsewhere for each n
//	playhead-bench read -url URL -flight 8 -out FILE       # prints one JSON object
//
// `serve` answers without an SDK, so that a client is measured and not the server: it costs a tenth of a
// server on the Python SDK per page. It speaks the 2026-07-28 revision and the handshake before it.
// `read` is the loop that a developer writes on the official Go SDK: connect, call the tool, read pages of
// 100 KiB, one after another or several at once, save and hash them.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("expected serve or read as the first argument, got none"))
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	transport := flags.String("transport", "http", "serve: stdio, http or ws")
	size := flags.Int("size", 32<<20, "serve: bytes of the resource")
	file := flags.String("file", "", "serve: an mp3 file in place of random bytes")
	blob := flags.Int("blob", 0, "serve: bytes of the blob in the result of the tool `blob`")
	url := flags.String("url", "", "read: URL of the server")
	flight := flags.Int("flight", 1, "read: most reads in flight")
	out := flags.String("out", "", "read: where to save")
	if err := flags.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	switch os.Args[1] {
	case "serve":
		fail(serve(*transport, *file, *size, *blob))
	case "read":
		fail(read(*url, *flight, *out))
	default:
		fail(fmt.Errorf("expected serve or read as the first argument, got %q", os.Args[1]))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
