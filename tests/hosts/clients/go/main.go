// The Go SDK's client: a URL or a command, and a line of JSON with what it got.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	updated := make(chan string, 8)
	note := func(_ context.Context, request *mcp.ResourceUpdatedNotificationRequest) { updated <- request.Params.URI }
	client := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, &mcp.ClientOptions{ResourceUpdatedHandler: note})
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: os.Args[1]}
	if !strings.HasPrefix(os.Args[1], "http") {
		transport = &mcp.CommandTransport{Command: exec.Command(os.Args[1], os.Args[2:]...)}
	}
	session := must(client.Connect(ctx, transport, nil))
	texts := func(name, text string) []string {
		params := &mcp.CallToolParams{Name: name, Arguments: map[string]any{"text": text}}
		made := []string{}
		for _, block := range must(session.CallTool(ctx, params)).Content {
			if content, is := block.(*mcp.TextContent); is {
				made = append(made, content.Text)
			} else {
				made = append(made, fmt.Sprintf("%T", block))
			}
		}
		return made
	}
	got := map[string]any{}
	tools, resources := []string{}, []string{}
	for _, tool := range must(session.ListTools(ctx, nil)).Tools {
		tools = append(tools, tool.Name)
	}
	got["tools"] = tools
	got["echo"] = texts("echo", "hello")
	got["song"] = texts("song", "here")
	for _, each := range must(session.ListResources(ctx, nil)).Resources {
		resources = append(resources, each.URI)
	}
	got["resources"] = resources
	got["read"] = must(session.ReadResource(ctx, &mcp.ReadResourceParams{URI: "song://1"})).Contents[0].Text
	if err := session.Subscribe(ctx, &mcp.SubscribeParams{URI: "song://1"}); err != nil {
		log.Fatal(err)
	}
	texts("touch", "")
	select {
	case uri := <-updated:
		got["updated"] = []string{uri}
	case <-ctx.Done():
		log.Fatal("no update")
	}
	fmt.Println(string(must(json.Marshal(got))))
	session.Close()
}
