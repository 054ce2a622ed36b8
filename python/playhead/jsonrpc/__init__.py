"""JSON-RPC messages as bytes: codec, line framing, incoming messages and protocol faults. No I/O."""
