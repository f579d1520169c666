"""Generated protobuf code and nothing else (from proto/)."""
