package judge

import "fmt"

// A Register accepts or refuses the effects under one lease, as a sink does that compares generations. It refuses an
// effect under a generation below the highest one that it has accepted.
type Register struct {
	Generation int64 // the highest one that was accepted
	By         any   // whose effects of that generation were accepted: a process, or a handler; nil: it was only raised
}

// Raise raises the register to the generation of a tenure, and reports whether the register has not seen a higher one.
func (r *Register) Raise(t Tenure) bool {
	if t.Generation > r.Generation {
		r.Generation, r.By = t.Generation, nil
	}
	return t.Generation == r.Generation
}

// Effect reports whether the register accepts an effect. It returns an error if two processes, or two handlers, have an
// accepted effect under one generation.
func (r *Register) Effect(t Tenure, by any) (accepted bool, err error) {
	switch {
	case t.Generation < r.Generation:
		return false, nil
	case t.Generation == r.Generation && r.By != nil && r.By != by:
		return true, fmt.Errorf("S3: %v and %v both have an accepted effect under %v", r.By, by, t)
	}
	r.Generation, r.By = t.Generation, by
	return true, nil
}
