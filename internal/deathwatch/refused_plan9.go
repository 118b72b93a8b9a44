package deathwatch

// refusals returns nothing: on Plan 9 no error of a dial shows that nobody listens.
func refusals() []error { return nil }

// passing returns the errors of accept that may be gone at the next call: none beyond those that say so.
func passing() []error { return nil }
