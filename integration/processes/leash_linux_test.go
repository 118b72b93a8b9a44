package processes

import "syscall"

// leash kills a worker process when the process that started it dies, even if it is stopped.
func leash() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
