-- Processes and what they do by the clock. Global: no tenant, no secret.

CREATE TABLE nodes (
    node_id          uuid PRIMARY KEY,
    kind             text NOT NULL,
    -- Host and installation: a process that starts at the same place knows that the earlier one is dead.
    place            text NOT NULL,
    -- Makes calls of its own: there is one such node until limits are shared.
    serves_calls     boolean NOT NULL,
    started_at       timestamptz NOT NULL DEFAULT now(),
    lease_expires_at timestamptz NOT NULL,
    ended_at         timestamptz,

    CONSTRAINT node_kind_known CHECK (kind IN ('up', 'api', 'worker'))
);
GRANT SELECT, INSERT, UPDATE, DELETE ON nodes TO bailiwick_app;

-- Registers a process: earlier ones of its place are dead, since it stands where they stood. A row that
-- comes back is a living process elsewhere that serves calls: nothing was registered then.
CREATE FUNCTION register_node(p_node uuid, p_kind text, p_place text, p_serves_calls boolean, p_lease_ms bigint)
RETURNS TABLE (other_kind text, other_place text)
LANGUAGE plpgsql AS $$
BEGIN
    -- Of two that start at the same moment one is first.
    LOCK TABLE nodes IN SHARE ROW EXCLUSIVE MODE;
    UPDATE nodes SET ended_at = clock_timestamp() WHERE place = p_place AND ended_at IS NULL;
    IF p_serves_calls THEN
        RETURN QUERY
            SELECT n.kind, n.place FROM nodes n
            WHERE n.serves_calls AND n.ended_at IS NULL AND n.lease_expires_at > clock_timestamp() LIMIT 1;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO nodes (node_id, kind, place, serves_calls, lease_expires_at)
    VALUES (p_node, p_kind, p_place, p_serves_calls, clock_timestamp() + p_lease_ms * interval '1 millisecond');
END $$;

-- Prolongs a lease. 'revived': it had run out, and nobody had noticed or taken the node's place;
-- 'ended': somebody had, and the node may not go on.
CREATE FUNCTION renew_node(p_node uuid, p_lease_ms bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    mine nodes;
BEGIN
    -- The usual case takes no lock but that of its row.
    UPDATE nodes SET lease_expires_at = clock_timestamp() + p_lease_ms * interval '1 millisecond'
    WHERE node_id = p_node AND ended_at IS NULL AND lease_expires_at > clock_timestamp();
    IF FOUND THEN
        RETURN 'renewed';
    END IF;
    LOCK TABLE nodes IN SHARE ROW EXCLUSIVE MODE;
    SELECT * INTO mine FROM nodes WHERE node_id = p_node AND ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN 'ended';
    END IF;
    IF mine.serves_calls AND EXISTS (
        SELECT FROM nodes n
        WHERE n.node_id <> p_node AND n.serves_calls AND n.ended_at IS NULL
          AND n.lease_expires_at > clock_timestamp())
    THEN
        UPDATE nodes SET ended_at = clock_timestamp() WHERE node_id = p_node;
        RETURN 'ended';
    END IF;
    UPDATE nodes SET lease_expires_at = clock_timestamp() + p_lease_ms * interval '1 millisecond'
    WHERE node_id = p_node;
    RETURN 'revived';
END $$;

-- What is done again and again. A row is a lease with a fencing number: who holds a smaller epoch
-- has lost it and cannot say "done".
CREATE TABLE ticks (
    name             text PRIMARY KEY,
    due_at           timestamptz NOT NULL,
    epoch            bigint NOT NULL DEFAULT 0,
    holder_node_id   uuid,
    lease_expires_at timestamptz,
    done_at          timestamptz
);
GRANT SELECT, INSERT, UPDATE, DELETE ON ticks TO bailiwick_app;

-- Takes a tick that is due and that nobody holds: its epoch. A lease ends with its holder, so that a
-- restart need not wait for it; and a node that asks has ended its own earlier work.
CREATE FUNCTION take_tick(p_name text, p_node uuid, p_lease_ms bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    UPDATE ticks t
    SET epoch = t.epoch + 1, holder_node_id = p_node,
        lease_expires_at = clock_timestamp() + p_lease_ms * interval '1 millisecond'
    WHERE t.name = p_name AND t.due_at <= clock_timestamp()
      AND (t.lease_expires_at IS NULL OR t.lease_expires_at < clock_timestamp()
           OR t.holder_node_id = p_node
           OR NOT EXISTS (SELECT FROM nodes n
                          WHERE n.node_id = t.holder_node_id AND n.ended_at IS NULL
                            AND n.lease_expires_at > clock_timestamp()))
    RETURNING t.epoch
$$;

-- Cross-tenant work finds its rows only by functions like these.
CREATE FUNCTION due_dead_calls(most integer)
RETURNS TABLE (tenant_id uuid, execution_id uuid, call_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.tenant_id, c.execution_id, c.call_id FROM tool_calls c
    LEFT JOIN nodes n ON n.node_id = c.node_id
    WHERE c.ended_at IS NULL
      AND (n.node_id IS NULL OR n.ended_at IS NOT NULL OR n.lease_expires_at < clock_timestamp())
    LIMIT most
$$;

-- Questions whose time is over, and such whose holder died with its node.
CREATE FUNCTION due_questions(at timestamptz, most integer)
RETURNS TABLE (tenant_id uuid, permission_request_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT r.tenant_id, r.permission_request_id FROM permission_requests r
    LEFT JOIN nodes n ON n.node_id = r.node_id
    WHERE r.state = 'pending'
      AND (r.expires_at <= at
           OR (r.detached_at IS NULL AND r.node_id IS NOT NULL
               AND (n.node_id IS NULL OR n.ended_at IS NOT NULL OR n.lease_expires_at < clock_timestamp())))
    LIMIT most
$$;

CREATE FUNCTION due_ended_calls(ended_before timestamptz, most integer)
RETURNS TABLE (tenant_id uuid, execution_id uuid, call_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.tenant_id, c.execution_id, c.call_id FROM tool_calls c
    WHERE c.ended_at < ended_before ORDER BY c.ended_at LIMIT most
$$;
