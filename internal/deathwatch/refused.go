//go:build !windows && !plan9

package deathwatch

import "syscall"

// refusals returns the errors of a dial to an address where nobody listens.
func refusals() []error { return []error{syscall.ECONNREFUSED} }

// passing returns the errors of accept that are about one connection, or about memory that is short at the moment.
// Their method Temporary does not say so.
func passing() []error {
	return []error{syscall.ENOBUFS, syscall.ENOMEM, syscall.EPROTO, syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTUNREACH}
}
