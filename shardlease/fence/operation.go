package fence

import (
	"net/url"
	"strings"
)

// Operation returns the id of one effect of one record of the shard, by which a service or an outbox recognizes a
// repetition. The position is that of the record in the shard, and effect is the same text whenever the record is processed,
// and tells the effects of one record apart. Two ids are equal only if the group, the shard, the position and the effect are.
//
// The id does not contain the generation. A successor processes the records after the last checkpoint again, and has to
// arrive at the same ids. The generation is for a sink that compares it.
func (t Token) Operation(position, effect string) string {
	parts := []string{t.Group, t.Shard, position, effect}
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}
