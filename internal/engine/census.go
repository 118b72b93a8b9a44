package engine

import "github.com/shardlease/shardlease-go/shardlease/lease"

// The seats of a group of sessions, listed only to find out whose fault the failures of a lease are.
//
//	unknown → wanted: a listing is under way → known, for rows that were known when it was sent
//
// Called by the spine of a session: want if a lease that has failed too often needs a listing, keep in each step,
// listed with answers. Called by such a lease: since.
//
// Nothing is written here.
//
// Invariant: a listing counts for a row only if it was sent when the row was known: a session that joined since may be
// able to do what others have failed.

// A census is the seats as a session last listed them.
type census struct {
	list  read
	seats []lease.Seat // replaced with each listing, and never changed
	begun order        // the step in which that listing was sent; 0: there was none
}

// since returns the seats if the last listing was sent in the given step or later.
func (c *census) since(step order) (seats []lease.Seat, known bool) {
	return c.seats, c.begun > 0 && c.begun >= step
}

// want makes a listing begin, unless one is under way.
func (c *census) want() { c.list.wanted = c.list.wanted || !c.list.sent }

// keep sends the listing that is wanted.
func (c *census) keep(t *turn) {
	if c.list.wanted && c.list.due(t) {
		c.list.send(t, lease.Query{Kind: lease.KindSeat})
	}
}

// listed takes the answer to a listing, and reports whether this part has sent it. A seat that cannot be read counts as
// that of a session that has not failed yet.
func (c *census) listed(t *turn, in Listed) (mine bool) {
	if !c.list.sent || c.list.id != serial(in.Read) {
		return false
	}
	if !c.list.answered(t, 0, 1, in.Err) {
		t.failedNow("", in.Err)
		return true
	}
	c.begun, c.seats = c.list.begun, nil
	for _, r := range in.Records {
		if seat, ok := r.(lease.Seat); ok {
			c.seats = append(c.seats, seat)
		}
	}
	for _, u := range in.Unreadable {
		if u.Key.Kind == lease.KindSeat {
			c.seats = append(c.seats, lease.Seat{Group: t.cfg.Group, Incarnation: lease.Incarnation(u.Key.Name), Beat: 1})
		}
	}
	return true
}

// fails reports whether the listing waits to be repeated.
func (c *census) fails() bool { return c.list.try.tries > 0 }
