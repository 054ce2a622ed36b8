"""JSON-RPC messages as bytes: decoding, line framing, incoming messages and protocol faults. No I/O."""
