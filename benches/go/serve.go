package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
)

const (
	uri = "resource://pages"
	// Of every result; a client of an earlier revision ignores what it does not know.
	common = `"resultType":"complete","ttlMs":0,"cacheScope":"private",` +
		`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"pages","version":"1"}}`
)

// server has the resource, and the tool results, which are the same each time.
type server struct {
	data   []byte
	frames []int
	mime   string
	blob   []byte
}

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		URI             string          `json:"uri"`
		Name            string          `json:"name"`
		ProtocolVersion string          `json:"protocolVersion"`
		Arguments       json.RawMessage `json:"arguments"`
	} `json:"params"`
}

func serve(transport, file string, size, blob int) error {
	made := &server{data: randomBytes(size), mime: "application/x-pages"}
	if file != "" {
		music, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		made.data, made.frames, made.mime = music, mp3Frames(music), "audio/mpeg"
	}
	made.blob = []byte(fmt.Sprintf(`{"content":[{"type":"resource","resource":{"uri":"resource://blob",`+
		`"mimeType":"audio/wav","blob":"%s"}}],"isError":false,%s}`,
		base64.StdEncoding.EncodeToString(randomBytes(blob)), common))
	if transport == "stdio" {
		return made.stdio()
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	scheme, handle := "http", made.http
	if transport == "ws" {
		scheme, handle = "ws", made.websocket
	}
	fmt.Printf("%s://%s/mcp\n", scheme, listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the process that started this server has ended
	}()
	return http.Serve(listener, http.HandlerFunc(handle))
}

func randomBytes(size int) []byte {
	made := make([]byte, size)
	rand.New(rand.NewSource(0)).Read(made)
	return made
}

func (s *server) stdio() error {
	lines := bufio.NewReaderSize(os.Stdin, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if answer := s.answer(line); answer != nil {
			if _, err := os.Stdout.Write(append(answer, '\n')); err != nil {
				return err
			}
		}
	}
}

func (s *server) http(writer http.ResponseWriter, asked *http.Request) {
	if asked.Method != http.MethodPost {
		writer.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(asked.Body)
	if err != nil {
		return
	}
	answer := s.answer(body)
	if answer == nil {
		writer.WriteHeader(http.StatusAccepted)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	writer.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = writer.Write(answer)
}

// answer is a response to one message, or nil where it gets none.
func (s *server) answer(message []byte) []byte {
	var asked request
	if err := json.Unmarshal(message, &asked); err != nil || asked.ID == nil {
		return nil
	}
	var made bytes.Buffer
	made.WriteString(`{"jsonrpc":"2.0","id":`)
	made.Write(asked.ID)
	key, result := s.result(&asked)
	made.WriteString(`,"` + key + `":`)
	made.Write(result)
	made.WriteByte('}')
	return made.Bytes()
}

func (s *server) result(asked *request) (key string, result []byte) {
	const capabilities = `"capabilities":{"tools":{},"resources":{}},`
	switch asked.Method {
	case "server/discover":
		return "result", []byte(`{"supportedVersions":["2026-07-28"],` + capabilities + common + `}`)
	case "initialize":
		return "result", fmt.Appendf(nil, `{"protocolVersion":%q,%s"serverInfo":{"name":"pages","version":"1"}}`,
			asked.Params.ProtocolVersion, capabilities)
	case "ping":
		return "result", []byte(`{}`)
	case "tools/list":
		return "result", []byte(`{"tools":[{"name":"link","inputSchema":{"type":"object"}},` +
			`{"name":"blob","inputSchema":{"type":"object"}}],` + common + `}`)
	case "resources/templates/list":
		return "result", []byte(`{"resourceTemplates":[{"name":"pages","uriTemplate":"resource://pages{?url,start,end}"}],` +
			common + `}`)
	case "resources/list":
		return "result", []byte(`{"resources":[],` + common + `}`)
	case "tools/call":
		if asked.Params.Name == "blob" {
			return "result", s.blob
		}
		var given struct{ Song int }
		_ = json.Unmarshal(asked.Params.Arguments, &given)
		return "result", fmt.Appendf(nil, `{"content":[{"type":"resource_link","uri":%q,"name":"pages",`+
			`"mimeType":%q,"description":"http://127.0.0.1/pages?song=%d","size":%d}],"isError":false,%s}`,
			uri, s.mime, given.Song, len(s.data), common)
	case "resources/read":
		if start, end, origin, ok := rangeOf(asked); ok {
			return "result", s.page(asked.Params.URI, s.song(origin), start, end)
		}
		return "error", []byte(`{"code":-32602,"message":"expected start and end"}`)
	}
	return "error", []byte(`{"code":-32601,"message":"no such method"}`)
}

// rangeOf takes start, end and the origin's URL from `arguments`, else from the query of the URI.
func rangeOf(asked *request) (start, end int, origin string, ok bool) {
	var given struct {
		Start *int   `json:"start"`
		End   *int   `json:"end"`
		URL   string `json:"url"`
	}
	if asked.Params.Arguments != nil && json.Unmarshal(asked.Params.Arguments, &given) == nil &&
		given.Start != nil && given.End != nil {
		return *given.Start, *given.End, given.URL, true
	}
	parsed, err := url.Parse(asked.Params.URI)
	if err != nil {
		return 0, 0, "", false
	}
	query := parsed.Query()
	start, badStart := strconv.Atoi(query.Get("start"))
	end, badEnd := strconv.Atoi(query.Get("end"))
	return start, end, query.Get("url"), badStart == nil && badEnd == nil
}

// song is where the song of an origin's URL begins; the music before it follows at the end.
func (s *server) song(origin string) int {
	parsed, err := url.Parse(origin)
	if err != nil || len(s.frames) == 0 {
		return 0
	}
	number, err := strconv.Atoi(parsed.Query().Get("song"))
	if err != nil || number <= 0 {
		return 0
	}
	return s.frames[number*31%(len(s.frames)-len(s.frames)/8)] // the end is silent in some encodings
}

// mp3Frames are the offsets of the frames of an MP3; two bytes like a frame's first may be within one, too.
func mp3Frames(data []byte) []int {
	var offsets []int
	kilobits := [2][15]int{
		{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160}, // MPEG-2
		{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
	}
	for at := 0; at+4 <= len(data) && data[at] == 0xff && 0 < data[at+2]>>4 && data[at+2]>>4 < 15 && data[at+2]>>2&3 < 3; {
		offsets = append(offsets, at)
		version := int(data[at+1]) >> 3 & 1
		hertz := []int{22050, 24000, 16000}[data[at+2]>>2&3] << version
		at += 72000<<version*kilobits[version][data[at+2]>>4]/hertz + int(data[at+2])>>1&1
	}
	return offsets
}

func (s *server) page(asked string, song, start, end int) []byte {
	end = max(0, min(end, len(s.data)))
	start = max(0, min(start, end))
	first := s.data[min(song+start, len(s.data)):min(song+end, len(s.data))]
	rest := s.data[max(0, song+start-len(s.data)):max(0, song+end-len(s.data))]
	data := first
	if len(rest) > 0 {
		data = append(append([]byte{}, first...), rest...)
	}
	quoted, _ := json.Marshal(asked)
	made := make([]byte, 0, base64.StdEncoding.EncodedLen(len(data))+512)
	made = fmt.Appendf(made, `{"contents":[{"uri":%s,"mimeType":%q,"blob":"`, quoted, s.mime)
	made = base64.StdEncoding.AppendEncode(made, data)
	return append(made, `"}],`+common+`}`...)
}
