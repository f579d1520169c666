CREATE TABLE ledger_entries (
  id VARCHAR(64) NOT NULL,
  handler_name TEXT NOT NULL,
  event_id TEXT NOT NULL,
  event_type TEXT NOT NULL,
  domain TEXT NOT NULL,
  tenant_id TEXT NOT NULL,
  correlation_id TEXT NOT NULL,
  reason TEXT NOT NULL,
  category TEXT NOT NULL,
  error_type TEXT NOT NULL,
  error_code TEXT NOT NULL,
  error_message TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  component_type TEXT NOT NULL,
  worker TEXT NOT NULL,
  version TEXT NOT NULL,
  retry_count INTEGER NOT NULL,
  occurrences INTEGER NOT NULL,
  first_failed_at DATETIME NOT NULL,
  last_failed_at DATETIME NOT NULL,
  letter_id TEXT NOT NULL,
  letter_replay INTEGER NOT NULL,
  status TEXT NOT NULL,
  failure_class TEXT,
  evidence TEXT NOT NULL,
  replays INTEGER NOT NULL,
  next_replay_at DATETIME,
  published_at DATETIME,
  wake_at DATETIME,
  resolved_by TEXT NOT NULL,
  resolved_at DATETIME,
  revision INTEGER NOT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX ledger_entries_by_domain ON ledger_entries (domain, last_failed_at, id);
CREATE INDEX ledger_entries_by_event ON ledger_entries (event_id);
CREATE INDEX ledger_entries_by_event_type ON ledger_entries (event_type, last_failed_at, id);
CREATE INDEX ledger_entries_by_fingerprint ON ledger_entries (fingerprint, last_failed_at, id);
CREATE INDEX ledger_entries_by_handler ON ledger_entries (handler_name, last_failed_at, id);
CREATE INDEX ledger_entries_by_status ON ledger_entries (status, last_failed_at, id);
CREATE INDEX ledger_entries_by_tenant ON ledger_entries (tenant_id, last_failed_at, id);
CREATE INDEX ledger_entries_by_time ON ledger_entries (last_failed_at, id);
CREATE INDEX ledger_entries_by_wake ON ledger_entries (wake_at);
CREATE TABLE ledger_history (
  number INTEGER NOT NULL,
  entry_id VARCHAR(64) NOT NULL,
  at DATETIME NOT NULL,
  who TEXT NOT NULL,
  what TEXT NOT NULL,
  detail TEXT NOT NULL,
  letter_id TEXT,
  replay INTEGER,
  PRIMARY KEY (number),
  CONSTRAINT ledger_history_one_line_a_letter UNIQUE (entry_id, letter_id, replay),
  FOREIGN KEY(entry_id) REFERENCES ledger_entries (id) ON DELETE CASCADE
);
CREATE INDEX ix_ledger_history_letter_id ON ledger_history (letter_id);
CREATE TABLE ledger_letters (
  entry_id VARCHAR(64) NOT NULL,
  body BLOB NOT NULL,
  content_type TEXT NOT NULL,
  problem TEXT,
  domain TEXT NOT NULL,
  received_at DATETIME,
  PRIMARY KEY (entry_id),
  FOREIGN KEY(entry_id) REFERENCES ledger_entries (id) ON DELETE CASCADE
);
