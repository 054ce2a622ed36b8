package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const pageBytes = 100 * 1024

// loop reads pages of one resource; write saves and hashes them in order.
type loop struct {
	session *mcp.ClientSession
	uri     string
	size    int
	file    *os.File
	digest  hash.Hash
}

// read times the whole command: from connecting to the complete file.
func read(url string, flight int, out string) error {
	started := time.Now()
	ctx := context.Background()
	client := mcp.NewClient(&mcp.Implementation{Name: "reference", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true}, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	called, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "link"})
	if err != nil {
		return err
	}
	link, ok := called.Content[0].(*mcp.ResourceLink)
	if !ok || link.Size == nil {
		return fmt.Errorf("expected a link with a size, got %T", called.Content[0])
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	reading := loop{session: session, uri: link.URI, size: int(*link.Size), file: file, digest: sha256.New()}
	if err := reading.run(ctx, flight); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"seconds": time.Since(started).Seconds(), "cpu_seconds": cpuSeconds(),
		"sha256": hex.EncodeToString(reading.digest.Sum(nil)),
	})
}

type page struct {
	data []byte
	err  error
}

// run keeps `flight` reads under way and takes their pages in order; with 1 it is the sequential loop.
func (l *loop) run(ctx context.Context, flight int) error {
	var waiting []chan page
	for asked := 0; asked < l.size || len(waiting) > 0; {
		if asked < l.size && len(waiting) < flight {
			arrived := make(chan page, 1)
			go func(start int) {
				data, err := l.page(ctx, start)
				arrived <- page{data, err}
			}(asked)
			waiting = append(waiting, arrived)
			asked += pageBytes
			continue
		}
		next := <-waiting[0]
		waiting = waiting[1:]
		if next.err != nil {
			return next.err
		}
		if _, err := l.file.Write(next.data); err != nil {
			return err
		}
		l.digest.Write(next.data)
	}
	return nil
}

func (l *loop) page(ctx context.Context, start int) ([]byte, error) {
	asked := fmt.Sprintf("%s?start=%d&end=%d", l.uri, start, start+pageBytes)
	result, err := l.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: asked})
	if err != nil {
		return nil, err
	}
	if len(result.Contents) != 1 {
		return nil, fmt.Errorf("expected one content of %s, got %d", asked, len(result.Contents))
	}
	return result.Contents[0].Blob, nil
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}
