//go:build !unix

package processes

// die ends this process as a fault of its program would.
func die(order string) { panic("ordered to die: " + order) }
