package inspect

import "time"

// An Age is how long ago something happened, or how long it has lasted. The zero Age is unknown.
type Age struct {
	D     time.Duration // the best estimate; 0 if it is unknown
	Known bool
	// Observed reports that the reader's own clock has measured D. Otherwise D is told: the
	// difference between the reader's clock and a time that another clock has stored.
	Observed bool
	// Watched is for how long the reader itself has seen it last: a lower bound. It is 0 at the first
	// look.
	Watched time.Duration
}

// skew is the clock difference that is allowed for told ages.
const skew = time.Minute

// since returns the told age of something that happened at a stored time.
func since(now, at time.Time) Age {
	if at.IsZero() {
		return Age{}
	}
	return Age{D: max(0, now.Sub(at)), Known: true}
}

// over reports whether the age exceeds a limit for certain: by the reader's own clock, or by more than
// two clocks may differ.
func (a Age) over(limit time.Duration) bool {
	if a.Watched >= limit {
		return true
	}
	return a.Known && !a.Observed && a.D >= limit+skew
}

// seen returns the age after the reader has watched it for some time. whole: the reader has seen
// the beginning too.
func (a Age) seen(watched time.Duration, whole bool) Age {
	switch {
	case whole || !a.Known || watched >= a.D:
		return Age{D: watched, Known: true, Observed: true, Watched: watched}
	}
	a.Watched = watched
	return a
}

// younger returns the age of which less is known to have passed. If one is unknown, it is that.
func younger(a, b Age) Age {
	if !a.Known || b.Known && a.D < b.D {
		return a
	}
	return b
}
