package processes

import "syscall"

// leash ends a worker process with the one that started it, even when it is stopped.
func leash() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
