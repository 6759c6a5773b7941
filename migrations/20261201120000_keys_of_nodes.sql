-- Which encryption keys each process has, the one that seals first: what is sealed by another one it
-- cannot read, and `keys rotate` waits until all of them know the new key.

-- NULL: a version that did not say.
ALTER TABLE nodes ADD COLUMN key_ids text[];

-- As before, with the keys. The older forms stay for processes of the versions before this one.
CREATE FUNCTION register_node(
    p_node uuid, p_kind text, p_place text, p_serves_calls boolean, p_lease_ms bigint, p_version text,
    p_key_ids text[])
RETURNS TABLE (other_kind text, other_place text)
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
        SELECT r.other_kind, r.other_place
        FROM register_node(p_node, p_kind, p_place, p_serves_calls, p_lease_ms, p_version) r;
    UPDATE nodes SET key_ids = p_key_ids WHERE node_id = p_node;
END $$;
