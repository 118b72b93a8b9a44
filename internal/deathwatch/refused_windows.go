package deathwatch

import "syscall"

// refusals returns the errors of a dial to an address where nobody listens. The sockets of Windows
// return WSAECONNREFUSED, which package syscall does not name.
func refusals() []error { return []error{syscall.ECONNREFUSED, syscall.Errno(10061)} }

// passing returns the errors of accept that may be gone at the next call: none beyond those that say so.
func passing() []error { return nil }
