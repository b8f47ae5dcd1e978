-- The records of tower-idempotency: one row for each (owner, operation, key). See protocol.md.
-- Times are milliseconds since 1970, by the clock of the machine that holds the file.

CREATE TABLE tower_idempotency_record (
    owner        TEXT COLLATE BINARY NOT NULL,
    operation    TEXT COLLATE BINARY NOT NULL,
    key          TEXT COLLATE BINARY NOT NULL,
    state        TEXT COLLATE BINARY NOT NULL,
    -- Fresh for every claim. Kept on completed rows: the proof of whose commit it was.
    claim_token  BLOB,
    claimed_at   INTEGER NOT NULL,
    -- Set by the claim's owner, so that deployments with other settings agree.
    stale_at     INTEGER NOT NULL,
    fingerprint  TEXT COLLATE BINARY,
    status       INTEGER,
    kept         INTEGER,
    -- Header lines and body as bytes, as they are replayed.
    headers      BLOB,
    body         BLOB,
    resource_ref TEXT COLLATE BINARY,
    completed_at INTEGER,
    -- NULL: kept for ever.
    expires_at   INTEGER,

    CONSTRAINT record_pkey PRIMARY KEY (owner, operation, key),
    CONSTRAINT record_owner_length CHECK (length(CAST(owner AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT record_operation_length CHECK (length(CAST(operation AS BLOB)) BETWEEN 1 AND 128),
    CONSTRAINT record_key_length CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT record_claim_token_length CHECK (claim_token IS NULL OR length(claim_token) = 16),
    CONSTRAINT record_resource_ref_length CHECK (
        resource_ref IS NULL OR length(CAST(resource_ref AS BLOB)) BETWEEN 1 AND 255
    ),
    -- No half-written row can be read as a response.
    CONSTRAINT record_state CHECK (
        CASE state
            WHEN 'claimed' THEN
                claim_token IS NOT NULL AND fingerprint IS NOT NULL
                AND status IS NULL AND kept IS NULL AND headers IS NULL AND body IS NULL
                AND resource_ref IS NULL AND completed_at IS NULL AND expires_at IS NULL
            WHEN 'completed' THEN
                claim_token IS NOT NULL AND fingerprint IS NOT NULL
                AND status IS NOT NULL AND completed_at IS NOT NULL
                AND CASE kept
                    WHEN 1 THEN headers IS NOT NULL AND body IS NOT NULL AND status BETWEEN 200 AND 299
                    WHEN 0 THEN headers IS NULL AND body IS NULL
                    ELSE 0
                END
            WHEN 'tombstone' THEN
                resource_ref IS NOT NULL AND completed_at IS NOT NULL
                AND claim_token IS NULL AND fingerprint IS NULL AND status IS NULL
                AND kept IS NULL AND headers IS NULL AND body IS NULL AND expires_at IS NULL
            ELSE 0
        END
    )
) STRICT;

-- Finds what a deleted resource was made by.
CREATE INDEX tower_idempotency_record_resource
    ON tower_idempotency_record (owner, operation, resource_ref)
    WHERE resource_ref IS NOT NULL;

-- Finds what may be purged. Partial: records that are kept for ever do not pay for it.
CREATE INDEX tower_idempotency_record_expires
    ON tower_idempotency_record (expires_at)
    WHERE expires_at IS NOT NULL;
