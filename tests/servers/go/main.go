// A paged resource behind mcp-go: a server on another SDK, in another language.
//
//	pages -transport stdio -size 33554432 [-chatty]
//	pages -transport http                 # prints its URL on stdout, lives while its stdin is open
//	pages -file song.wav -mime audio/wav  # a file in place of random bytes
//
// What mcp-go brings along, and a client has to live with: every tool says `destructiveHint: true` and the
// other default annotations; a plain resource receives `arguments`, a template overwrites them with its own
// variables; the stdio server answers reads one at a time. Its example server adds log lines on stdout
// (-chatty) and a tool that never answers (`never`).
package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

const (
	uri      = "resource://pages"
	template = "resource://pages{?url,start,end}"
)

var (
	data []byte
	mime string
)

func main() {
	transport := flag.String("transport", "stdio", "stdio or http")
	size := flag.Int("size", 32<<20, "bytes of the resource")
	seed := flag.Int64("seed", 0, "what the bytes follow from")
	file := flag.String("file", "", "the file that is the resource, in place of random bytes")
	flag.StringVar(&mime, "mime", "application/octet-stream", "MIME type of the resource")
	chatty := flag.Bool("chatty", false, "write log lines to stdout, between the answers")
	flag.Parse()

	var err error
	if *file != "" {
		data, err = os.ReadFile(*file)
	} else {
		data = make([]byte, *size)
		rand.New(rand.NewSource(*seed)).Read(data)
	}
	if err == nil {
		err = run(*transport, *chatty)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(transport string, chatty bool) error {
	pages := build(chatty)
	if transport == "stdio" {
		return server.ServeStdio(pages)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // whoever started this server is gone
	}()
	mux := http.NewServeMux()
	mux.Handle("/mcp", server.NewStreamableHTTPServer(pages))
	return http.Serve(listener, mux)
}

func build(chatty bool) *server.MCPServer {
	pages := server.NewMCPServer("go-pages", "1.0.0",
		server.WithResourceCapabilities(false, false), server.WithToolCapabilities(false))
	read := func(_ context.Context, request mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		if chatty {
			fmt.Printf("reading %s\n", request.Params.URI)
		}
		return page(request.Params)
	}
	pages.AddResource(mcp.NewResource(uri, "pages", mcp.WithMIMEType(mime)), read)
	pages.AddResourceTemplate(
		mcp.NewResourceTemplate(template, "pages", mcp.WithTemplateMIMEType(mime)),
		server.ResourceTemplateHandlerFunc(read))
	pages.AddTool(mcp.NewTool("link"), link)
	pages.AddTool(mcp.NewTool("never"), never)
	return pages
}

func page(params mcp.ReadResourceParams) ([]mcp.ResourceContents, error) {
	start, err := number(params.Arguments["start"])
	if err != nil {
		return nil, err
	}
	end, err := number(params.Arguments["end"])
	if err != nil {
		return nil, err
	}
	blob := "[DONE]"
	if start < len(data) {
		blob = string(data[start:min(end, len(data))])
	}
	return []mcp.ResourceContents{mcp.BlobResourceContents{
		URI: params.URI, MIMEType: mime, Blob: base64.StdEncoding.EncodeToString([]byte(blob))}}, nil
}

// number takes what JSON gives (a float64) and what a template's match gives (text, in a list or alone).
func number(value any) (int, error) {
	switch found := value.(type) {
	case float64:
		return int(found), nil
	case string:
		return strconv.Atoi(found)
	case []string:
		if len(found) == 1 {
			return strconv.Atoi(found[0])
		}
	}
	return 0, errors.New("a range is needed: start and end, in bytes from 0")
}

// link gives the resource, and its hash as text beside it: the two languages' generators differ.
func link(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	size := int64(len(data))
	pages := mcp.NewResourceLink(uri, "pages", "http://127.0.0.1/pages", mime)
	pages.Size = &size
	sum := sha256.Sum256(data)
	return &mcp.CallToolResult{Content: []mcp.Content{pages, mcp.NewTextContent(hex.EncodeToString(sum[:]))}}, nil
}

func never(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
