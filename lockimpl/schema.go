package lockimpl

// SchemaSQL creates what a lease needs in the database: a row per key that says which term is the current one, and the
// guard that fences effects with it. Run it once, as a migration.
const SchemaSQL = `
CREATE TABLE lock_terms (
	key    bigint PRIMARY KEY,
	term   bigint NOT NULL,      -- grows with each election; gaps are normal
	token  bigint NOT NULL,      -- random: a replica that lags may, after a failover, count the same term again
	holder text NOT NULL,
	pid    int NOT NULL,
	since  timestamptz NOT NULL
);

-- lock_guard fails with SQLSTATE LT001 when term t of key k is not the current one. It waits for a term that is being
-- begun, and a term cannot begin while it is held: whatever commits together with it commits before the next term.
CREATE FUNCTION lock_guard(k bigint, t bigint, tok bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM lock_terms WHERE key = k AND term = t AND token = tok FOR SHARE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'term % of key % is over', t, k USING ERRCODE = 'LT001';
	END IF;
END $$;
`

// TermOverCode is the SQLSTATE with which lock_guard refuses.
const TermOverCode = "LT001"
