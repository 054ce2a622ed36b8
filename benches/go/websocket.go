package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Opcodes of RFC 6455, section 5.2.
const (
	text  = 1
	shut  = 8
	ping  = 9
	pong  = 10
	final = 0x80
)

// websocket answers each text frame with one, as the loop over stdin does with lines. The client is ours:
// it sends no fragments.
func (s *server) websocket(writer http.ResponseWriter, asked *http.Request) {
	key := asked.Header.Get("Sec-WebSocket-Key")
	hijacker, ok := writer.(http.Hijacker)
	if key == "" || !ok {
		writer.WriteHeader(http.StatusUpgradeRequired)
		return
	}
	connection, buffered, err := hijacker.Hijack()
	if err != nil {
		return
	}
	defer connection.Close()
	accept := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	head := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(accept[:]) + "\r\n"
	if offered, _, _ := strings.Cut(asked.Header.Get("Sec-WebSocket-Protocol"), ","); offered != "" {
		head += "Sec-WebSocket-Protocol: " + strings.TrimSpace(offered) + "\r\n"
	}
	if _, err := io.WriteString(connection, head+"\r\n"); err != nil {
		return
	}
	for {
		opcode, payload, err := readFrame(buffered.Reader)
		if err != nil {
			return
		}
		switch opcode {
		case text:
			if answer := s.answer(payload); answer != nil {
				err = writeFrame(connection, text, answer)
			}
		case ping:
			err = writeFrame(connection, pong, payload)
		case shut:
			_ = writeFrame(connection, shut, payload)
			return
		}
		if err != nil {
			return
		}
	}
}

// readFrame reads a client's frame and takes off its mask.
func readFrame(from *bufio.Reader) (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err = io.ReadFull(from, head[:]); err != nil {
		return 0, nil, err
	}
	if head[0]&final == 0 || head[1]&0x80 == 0 {
		return 0, nil, fmt.Errorf("expected a whole masked frame, got %x", head)
	}
	length := uint64(head[1] & 0x7F)
	switch length {
	case 126:
		var extended [2]byte
		_, err = io.ReadFull(from, extended[:])
		length = uint64(binary.BigEndian.Uint16(extended[:]))
	case 127:
		var extended [8]byte
		_, err = io.ReadFull(from, extended[:])
		length = binary.BigEndian.Uint64(extended[:])
	}
	if err != nil {
		return 0, nil, err
	}
	masked := make([]byte, 4+length)
	if _, err = io.ReadFull(from, masked); err != nil {
		return 0, nil, err
	}
	payload = masked[4:]
	for i := range payload {
		payload[i] ^= masked[i%4]
	}
	return head[0] & 0x0F, payload, nil
}

func writeFrame(to io.Writer, opcode byte, payload []byte) error {
	frame := make([]byte, 0, 10+len(payload))
	frame = append(frame, final|opcode)
	switch length := len(payload); {
	case length < 126:
		frame = append(frame, byte(length))
	case length < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 126), uint16(length))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 127), uint64(length))
	}
	_, err := to.Write(append(frame, payload...))
	return err
}
