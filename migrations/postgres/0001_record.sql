-- The records of tower-idempotency: one row for each (owner, operation, key). See protocol.md.

-- A schema of its own, so that no search_path can hide the table from a statement.
CREATE SCHEMA IF NOT EXISTS tower_idempotency;

-- Whether a row is one that the protocol writes, so that no half-written row can be read as a
-- response. A function, because PostgreSQL parses the text of a CHECK for every statement anew, and
-- compiles a function once for each connection: it halves what a claim and a completion cost.
CREATE FUNCTION tower_idempotency.is_whole(
    owner text, operation text, key text, state text, claim_token bytea, fingerprint text,
    status smallint, kept boolean, headers bytea, body bytea, resource_ref text,
    completed_at timestamptz, expires_at timestamptz
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN octet_length(owner) BETWEEN 1 AND 255
        AND octet_length(operation) BETWEEN 1 AND 128
        AND octet_length(key) BETWEEN 1 AND 255
        AND coalesce(octet_length(claim_token) = 16, true)
        AND coalesce(octet_length(resource_ref) BETWEEN 1 AND 255, true)
        AND CASE state
            WHEN 'claimed' THEN
                num_nulls(claim_token, fingerprint) = 0
                AND num_nonnulls(status, kept, headers, body, resource_ref, completed_at, expires_at) = 0
            WHEN 'completed' THEN
                num_nulls(claim_token, fingerprint, status, kept, completed_at) = 0
                AND CASE WHEN kept
                    THEN num_nulls(headers, body) = 0 AND status BETWEEN 200 AND 299
                    ELSE num_nonnulls(headers, body) = 0
                END
            WHEN 'tombstone' THEN
                num_nulls(resource_ref, completed_at) = 0
                AND num_nonnulls(claim_token, fingerprint, status, kept, headers, body, expires_at) = 0
            ELSE false
        END;
END
$$;

CREATE TABLE tower_idempotency.record (
    -- Compared byte for byte, whatever the database's collation.
    owner        text COLLATE "C" NOT NULL,
    operation    text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    state        text COLLATE "C" NOT NULL,
    -- Fresh for every claim. Kept on completed rows: the proof of whose commit it was.
    claim_token  bytea,
    claimed_at   timestamptz NOT NULL,
    -- Set by the claim's owner, so that deployments with other settings agree.
    stale_at     timestamptz NOT NULL,
    fingerprint  text COLLATE "C",
    status       smallint,
    kept         boolean,
    -- Header lines and body as bytes, as they are replayed.
    headers      bytea,
    body         bytea,
    resource_ref text COLLATE "C",
    completed_at timestamptz,
    -- NULL: kept for ever.
    expires_at   timestamptz,

    CONSTRAINT record_pkey PRIMARY KEY (owner, operation, key),
    CONSTRAINT record_is_whole CHECK (tower_idempotency.is_whole(
        owner, operation, key, state, claim_token, fingerprint, status, kept, headers, body,
        resource_ref, completed_at, expires_at
    ))
);

-- Finds what a deleted resource was made by. Partial, and without `state` in its predicate, so that
-- completing a record that names no resource stays a HOT update.
CREATE INDEX record_resource ON tower_idempotency.record (owner, operation, resource_ref)
    WHERE resource_ref IS NOT NULL;

-- Finds what may be purged. Partial: records that are kept for ever do not pay for it.
CREATE INDEX record_expires ON tower_idempotency.record (expires_at)
    WHERE expires_at IS NOT NULL;
