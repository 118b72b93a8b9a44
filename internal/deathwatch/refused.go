//go:build !windows && !plan9

package deathwatch

import "syscall"

// refusals returns the errors of a dial to an address where nobody listens.
func refusals() []error { return []error{syscall.ECONNREFUSED} }
