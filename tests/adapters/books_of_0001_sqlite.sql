CREATE TABLE book_decisions (
  domain TEXT NOT NULL,
  root TEXT NOT NULL,
  edition TEXT NOT NULL,
  cause TEXT NOT NULL,
  odd_cause TEXT,
  verdict TEXT NOT NULL,
  reason TEXT NOT NULL,
  first_sequence INTEGER NOT NULL,
  event_count INTEGER NOT NULL,
  notes TEXT,
  decided_at DATETIME NOT NULL,
  digest TEXT NOT NULL,
  unsent_since DATETIME,
  PRIMARY KEY (domain, root, edition, cause)
);
CREATE INDEX ix_book_decisions_unsent_since ON book_decisions (unsent_since) WHERE unsent_since IS NOT NULL;
CREATE TABLE book_events (
  domain TEXT NOT NULL,
  root TEXT NOT NULL,
  edition TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  id TEXT NOT NULL,
  type TEXT NOT NULL,
  occurred_at DATETIME,
  event TEXT NOT NULL,
  PRIMARY KEY (domain, root, edition, sequence)
);
CREATE TABLE book_snapshots (
  domain TEXT NOT NULL,
  root TEXT NOT NULL,
  edition TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  version INTEGER NOT NULL,
  retention TEXT NOT NULL,
  state TEXT NOT NULL,
  PRIMARY KEY (domain, root, edition, sequence)
);
CREATE TABLE event_books (
  domain TEXT NOT NULL,
  root TEXT NOT NULL,
  edition TEXT NOT NULL,
  next_sequence INTEGER NOT NULL,
  PRIMARY KEY (domain, root, edition)
);
CREATE TABLE rejected_commands (
  id TEXT NOT NULL,
  saga TEXT NOT NULL,
  source_domain TEXT NOT NULL,
  source_root TEXT NOT NULL,
  source_edition TEXT NOT NULL,
  source_sequence INTEGER NOT NULL,
  target_domain TEXT NOT NULL,
  target_root TEXT NOT NULL,
  target_edition TEXT NOT NULL,
  command_id TEXT NOT NULL,
  command_type TEXT NOT NULL,
  reason TEXT NOT NULL,
  correlation_id TEXT NOT NULL,
  rejected_at DATETIME NOT NULL,
  status TEXT NOT NULL,
  answer TEXT NOT NULL,
  first_event INTEGER,
  event_count INTEGER NOT NULL,
  steps TEXT NOT NULL,
  asked_again INTEGER NOT NULL,
  asked_by TEXT NOT NULL,
  note TEXT NOT NULL,
  changed_at DATETIME NOT NULL,
  rejection TEXT NOT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX ix_rejected_commands_correlation_id ON rejected_commands (correlation_id);
CREATE INDEX ix_rejected_commands_newest ON rejected_commands (rejected_at, id);
CREATE INDEX ix_rejected_commands_saga ON rejected_commands (saga, rejected_at, id);
CREATE INDEX ix_rejected_commands_source ON rejected_commands (source_domain, rejected_at, id);
CREATE INDEX ix_rejected_commands_status ON rejected_commands (status, rejected_at, id);
