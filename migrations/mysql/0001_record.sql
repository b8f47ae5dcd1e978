-- The records of tower-idempotency: one row for each (owner, operation, key). See protocol.md.
-- Times are in UTC, by the server's clock.

CREATE TABLE IF NOT EXISTS tower_idempotency_record (
    -- VARBINARY: a collation would take `a`, `A` and `a ` for one key.
    owner        VARBINARY(255) NOT NULL,
    operation    VARBINARY(128) NOT NULL,
    `key`        VARBINARY(255) NOT NULL,
    state        VARBINARY(9) NOT NULL,
    -- Fresh for every claim. Kept on completed rows: the proof of whose commit it was.
    claim_token  VARBINARY(16),
    claimed_at   DATETIME(3) NOT NULL,
    -- Set by the claim's owner, so that deployments with other settings agree.
    stale_at     DATETIME(3) NOT NULL,
    fingerprint  VARBINARY(255),
    status       SMALLINT,
    kept         TINYINT,
    -- Header lines and body as bytes, as they are replayed.
    headers      LONGBLOB,
    body         LONGBLOB,
    resource_ref VARBINARY(255),
    completed_at DATETIME(3),
    -- NULL: kept for ever.
    expires_at   DATETIME(3),

    PRIMARY KEY (owner, operation, `key`),
    -- Finds what a deleted resource was made by.
    KEY record_resource (resource_ref, owner, operation),
    -- Finds what may be purged.
    KEY record_expires (expires_at),
    CONSTRAINT record_owner_length CHECK (length(owner) BETWEEN 1 AND 255),
    CONSTRAINT record_operation_length CHECK (length(operation) BETWEEN 1 AND 128),
    CONSTRAINT record_key_length CHECK (length(`key`) BETWEEN 1 AND 255),
    CONSTRAINT record_claim_token_length CHECK (claim_token IS NULL OR length(claim_token) = 16),
    CONSTRAINT record_resource_ref_length CHECK (
        resource_ref IS NULL OR length(resource_ref) BETWEEN 1 AND 255
    ),
    -- No half-written row can be read as a response. Without CASE, which MySQL does not take for a
    -- condition; and NULL would pass, so what is compared is asked for first.
    CONSTRAINT record_state CHECK (
        (
            state = 'claimed'
            AND claim_token IS NOT NULL AND fingerprint IS NOT NULL
            AND status IS NULL AND kept IS NULL AND headers IS NULL AND body IS NULL
            AND resource_ref IS NULL AND completed_at IS NULL AND expires_at IS NULL
        ) OR (
            state = 'completed'
            AND claim_token IS NOT NULL AND fingerprint IS NOT NULL
            AND status IS NOT NULL AND kept IS NOT NULL AND completed_at IS NOT NULL
            AND (
                (
                    kept = 1 AND headers IS NOT NULL AND body IS NOT NULL
                    AND status BETWEEN 200 AND 299
                )
                OR (kept = 0 AND headers IS NULL AND body IS NULL)
            )
        ) OR (
            state = 'tombstone'
            AND resource_ref IS NOT NULL AND completed_at IS NOT NULL
            AND claim_token IS NULL AND fingerprint IS NULL AND status IS NULL
            AND kept IS NULL AND headers IS NULL AND body IS NULL AND expires_at IS NULL
        )
    )
) ENGINE = InnoDB;

-- The transactions of handlers that have begun, each with the token of its claim: rows that are never
-- seen, for they are deleted before the commit. Where a transaction has gone, one that is there tells
-- that a handler committed it by hand, and none that a deadlock rolled it back.
CREATE TABLE IF NOT EXISTS tower_idempotency_begun (
    token BINARY(16) NOT NULL PRIMARY KEY
) ENGINE = InnoDB;
