-- Which version of the program each process runs: `doctor` says where several live beside each other.

-- '': a version that did not say.
ALTER TABLE nodes ADD COLUMN version text NOT NULL DEFAULT '';

-- As before, with the version. The older form stays for processes of the version before this one.
CREATE FUNCTION register_node(
    p_node uuid, p_kind text, p_place text, p_serves_calls boolean, p_lease_ms bigint, p_version text)
RETURNS TABLE (other_kind text, other_place text)
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
        SELECT r.other_kind, r.other_place
        FROM register_node(p_node, p_kind, p_place, p_serves_calls, p_lease_ms) r;
    -- No row of this id: another node serves calls, and nothing was registered.
    UPDATE nodes SET version = p_version WHERE node_id = p_node;
END $$;
